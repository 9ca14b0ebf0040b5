"""`kohort region start`: a controller in a process of its own, beside operators on a broker."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kohort.broker import EmbeddedBroker
from kohort.client import AdminClient, NewTopic
from kohort.region import DeltaSink, ParquetDirectory
from tests.region.regions import (
    LONG_S,
    Counting,
    eventually,
    name_of_topic,
    produce,
    running,
    visible,
    worker,
)

SCHEMA = pa.schema([(name, pa.int64()) for name in ("partition", "offset", "value", "sum")])


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with EmbeddedBroker(
        offsets_topic_num_partitions=4, group_min_session_timeout_ms=1_000
    ) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(address: str) -> str:
    name = name_of_topic()
    with AdminClient(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(name, 2)])
    produce(address, name, 2, 400)
    return name


class Started:
    """The command in a process, and what it has said so far."""

    def __init__(self, *arguments: str) -> None:
        self.said = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kohort", "region", "start", *arguments],
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.said += line

    def waits_for(self, text: str) -> None:
        eventually(lambda: text in self.said or self._process.poll() is not None, text)
        assert text in self.said, self.said

    def end(self, number: signal.Signals | None = signal.SIGTERM) -> int:
        """Send a signal, if any, and return the exit code."""
        if number is not None:
            self._process.send_signal(number)
        code = self._process.wait(LONG_S)
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()
        return code


@contextmanager
def started(*arguments: str) -> Iterator[Started]:
    one = Started(*arguments)
    try:
        yield one
    finally:
        one.end(signal.SIGKILL)


def test_a_controller_alone_makes_the_region_and_publishes_for_its_operators(
    address: str, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no stranger to operators, has no partitions, and stays the controller."""
    name, group, out = f"region-{topic}", f"group-{topic}", tmp_path / "out"
    where = (name, "-b", address, "--sink", f"parquet:{out}")
    caplog.set_level(logging.INFO, "kohort.region")
    with started(*where, "--group-id", group, "--period-ms", "300") as controller:
        controller.waits_for("this process is the controller, epoch 1")
        with running(worker(address, topic, ParquetDirectory(out))) as (one,):
            eventually(lambda: visible(out) == 400, "all is visible")
            with AdminClient(bootstrap_servers=address) as admin:
                members = admin.describe_groups([group])[group].members
            assert [len(each.assignment) for each in members] == [2]
            state = one.worker.state
            assert state is not None
            assert [each.id.name for each in state.operators.values()] == ["one"]
        assert controller.end(signal.SIGINT) == 0
    assert one.error is None
    assert "stranger" not in caplog.text + controller.said
    assert controller.said.rstrip().endswith("ends")


def test_the_controller_goes_from_process_to_process(
    address: str, topic: str, tmp_path: Path
) -> None:
    """One that stops leaves it to the other at once, without a reset."""
    config = tmp_path / "client.properties"
    config.write_text("session.timeout.ms=3000\nheartbeat.interval.ms=500\n")
    name, out = f"region-{topic}", tmp_path / "out"
    where = (name, "-b", address, "--sink", f"parquet:{out}", "--command-config", str(config))
    with running(worker(address, topic, ParquetDirectory(out))) as (one,):
        eventually(lambda: visible(out) == 400, "all is visible")
        with started(*where) as first, started(*where) as second:
            first.waits_for("waits to be chosen")
            second.waits_for("waits to be chosen")
            one.stop()  # then one of the two has to be the controller
            is_of = "this process is the controller"
            eventually(lambda: is_of in first.said + second.said, "one of them is chosen")
            mine, other = (first, second) if is_of in first.said else (second, first)
            assert mine.end() == 0
            other.waits_for(is_of)
            produce(address, topic, 2, 100, first=400)
            with running(worker(address, topic, ParquetDirectory(out))) as (again,):
                eventually(lambda: visible(out) == 500, "it goes on")
    assert again.error is None
    assert again.worker.state is not None
    assert again.worker.state.attempt == 1


def test_what_was_complete_is_published_when_all_operators_are_gone(
    address: str, topic: str, tmp_path: Path
) -> None:
    """The operator's own candidate cannot publish: the table's log is away until it has ended."""
    table, away, name = tmp_path / "table", tmp_path / "away", f"region-{topic}"
    counting = Counting()
    settings: dict[str, Any] = {"mode": "operator-driven", "drain_timeout_ms": 2_000}
    one = worker(address, topic, DeltaSink(table, SCHEMA), function=counting, **settings)
    where = (name, "-b", address, "--sink", f"delta:{table}", "--mode", "operator-driven")
    with running(one) as (operator,):
        eventually(lambda: counting.given.total() == 400, "it has read all")
        table.joinpath("_delta_log").rename(away)
        operator.stop()
        state = one.state
        assert state is not None
        assert [each.checkpoint for each in state.unpublished] == [1]
    away.rename(table / "_delta_log")
    assert DeltaTable(table).to_pyarrow_table().num_rows == 0
    with started(*where) as controller:
        controller.waits_for("this process is the controller")
        eventually(lambda: DeltaTable(table).to_pyarrow_table().num_rows == 400, "all is there")
        assert controller.end() == 0
    version = DeltaTable(table).version()
    with started(*where) as controller:
        controller.waits_for("this process is the controller")
        assert controller.end() == 0
    assert DeltaTable(table).version() == version


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere", "--sink", "parquet:{out}"), "there is no region 'nowhere'"),
        (
            ("{region}", "--sink", "parquet:{out}", "--period-ms", "7"),
            "period_ms is 7 here and 300 in",
        ),
        (("{region}", "--sink", "{out}"), "--sink must be parquet:PATH or delta:TABLE"),
        (("{region}", "--sink", "parquet:"), "--sink must be parquet:PATH or delta:TABLE"),
        (("{region}", "--sink", "parquet:{out}", "--mode", "x"), "--mode must be periodic or"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_1(
    address: str, topic: str, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    if "--period-ms" in arguments:
        with running(worker(address, topic, ParquetDirectory(tmp_path))) as (one,):
            eventually(lambda: one.completed > 0, "the region is there")
    places = {"region": f"region-{topic}", "out": str(tmp_path)}
    with started(*(each.format(**places) for each in arguments), "-b", address) as controller:
        assert controller.end(None) == 1
    assert said in controller.said
    assert controller.said.splitlines()[-1].startswith("kohort: ")


def test_a_region_that_others_make_otherwise_meanwhile_is_refused(
    address: str, topic: str, tmp_path: Path
) -> None:
    where = (f"region-{topic}", "-b", address, "--sink", f"parquet:{tmp_path}")
    with running(worker(address, topic, ParquetDirectory(tmp_path))) as (one,):
        eventually(lambda: one.completed > 0, "the region is there")
        with started(*where, "--group-id", "another") as controller:
            assert controller.end(None) == 1
    assert f"group_id is another here and group-{topic} in the region" in controller.said


def test_the_output_of_another_region_is_refused(address: str, topic: str, tmp_path: Path) -> None:
    with running(worker(address, topic, ParquetDirectory(tmp_path))) as (one,):
        eventually(lambda: one.completed > 0, "the region is there")
    sink = ("--sink", f"parquet:{tmp_path}", "--group-id", "g")
    with started(f"other-{topic}", "-b", address, *sink) as controller:
        assert controller.end(None) == 1
    assert f"holds the output of region 'region-{topic}'" in controller.said
