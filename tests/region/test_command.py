"""`kohort region`, as a person types it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kohort.cli.region_views import seen
from kohort.client import AdminClient, Consumer, ConsumerRecord, NewTopic
from kohort.client.admin.aio import AsyncAdminClient
from kohort.errors import ErrorCode, KafkaError
from kohort.region import KeyedState, ParquetDirectory, RegionPartition
from kohort.region.inspecting import Sight, sights
from tests.cli.running import ran_text
from tests.region.regions import (
    LONG_S,
    Running,
    eventually,
    name_of_topic,
    produce,
    running,
    running_sum,
    visible,
    worker,
)


def region(*arguments: str) -> subprocess.CompletedProcess[str]:
    return ran_text("region", *arguments)


@pytest.fixture
def topic(address: str) -> str:
    name = name_of_topic()
    with AdminClient(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(name, 2)])
    produce(address, name, 2, 100)
    return name


@pytest.fixture
def one(address: str, topic: str, tmp_path: Path) -> Iterator[Running]:
    slow = worker(address, topic, ParquetDirectory(tmp_path), mode="operator-driven")
    with running(slow) as (started,):
        eventually(lambda: started.owned == 2, "it works")
        yield started


def test_a_region_is_shown_drained_reset_and_stopped(
    address: str, topic: str, one: Running, tmp_path: Path
) -> None:
    name, where = f"region-{topic}", ("-b", address)
    status = region("status", name, *where)
    assert status.returncode == 0
    assert f"GROUP group-{topic}" in status.stdout
    assert f"{topic}-0, {topic}-1" in status.stdout
    eventually(lambda: one.worker.state is not None and one.owned == 2, "it works")
    drained = region("drain", name, *where, "--why", "for a test", "--json")
    assert drained.returncode == 0, drained.stderr
    assert json.loads(drained.stdout)["completed"] == 1
    eventually(lambda: visible(tmp_path) > 0, "the checkpoint is published")
    reset = region("reset", name, *where)
    assert "attempt 2 continues from checkpoint 1" in reset.stdout, reset.stderr
    checkpoints = json.loads(region("checkpoints", name, *where, "--json").stdout)
    assert [each["partition"] for each in checkpoints["partitions"]] == [0, 1]
    stopped = region("stop", name, *where)
    assert "all operators have left" in stopped.stdout, stopped.stderr
    one.join()
    assert one.error is None
    assert region("status", name, *where).returncode == 4
    history = region("history", name, *where).stdout
    for kind in ("region", "registered", "claim", "drain", "contribution", "complete", "reset"):
        assert f"  {kind} " in history
    assert "why=for a test" in history
    lines = region("history", name, *where, "--json").stdout.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == [
        int(line.split()[1]) for line in history.splitlines()
    ]


def test_nothing_is_waited_for_where_nothing_runs(address: str, topic: str, tmp_path: Path) -> None:
    with running(worker(address, topic, ParquetDirectory(tmp_path))) as (one,):
        eventually(lambda: one.completed > 0, "it works")
    drained = region("drain", f"region-{topic}", "-b", address)
    assert drained.returncode == 1
    assert "no operator is running" in drained.stderr


def test_a_region_that_is_not_there_is_named(address: str) -> None:
    done = region("status", "nowhere", "-b", address)
    assert done.returncode == 1
    assert "there is no region 'nowhere': no topic __kohort-region-nowhere" in done.stderr
    assert "or the client's user may not DESCRIBE it" in done.stderr


async def look(name: str, address: str) -> Sight:
    async with sights(name, {"bootstrap_servers": address}) as looks:
        return await looks()


def test_a1_a_member_that_is_no_operator_is_named_with_its_host(
    address: str, topic: str, one: Running
) -> None:
    name, group_id, where = f"region-{topic}", f"group-{topic}", ("-b", address)
    assert asyncio.run(look(name, address)).strangers == ()
    stranger = Consumer(bootstrap_servers=address, group_id=group_id, client_id="a-plain-one")
    with stranger:
        stranger.subscribe([topic])
        eventually(lambda: bool(stranger.poll(100)) or bool(stranger.assignment()), "it has joined")
        done = region("status", name, *where)
        (found,) = json.loads(region("status", name, *where, "--json").stdout)["strangers"]
    told = " ".join(done.stdout.split())
    assert "WARNING: a-plain-one on /127.0.0.1 is in the group but not an operator of the" in told
    assert done.returncode in (0, 3)
    assert (found["client_id"], found["host"]) == ("a-plain-one", "/127.0.0.1")
    assert found["member_id"].startswith("a-plain-one-")
    assert one.error is None


def test_a_group_that_cannot_be_described_is_told(address: str, topic: str, one: Running) -> None:
    """Other clients of the region have the right to read its log, and no more."""

    async def refuse(*_: object) -> None:
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no right to describe it")

    with pytest.MonkeyPatch.context() as denied:
        denied.setattr(AsyncAdminClient, "describe_groups", refuse)
        sight = asyncio.run(look(one.worker.region, address))
    assert sight.strangers == ()
    assert f"group group-{topic} cannot be described: " in sight.problem
    assert sight.gone == ()
    said: dict[str, Any] = seen(one.worker.region, sight)
    assert (said["strangers"], said["problem"]) == (None, sight.problem)
    assert [each["gone"] for each in said["operators"]] == [None]


def test_settings_come_from_a_file(address: str, topic: str, one: Running, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("# how to reach it\nclient.id = somebody\nrequest.timeout.ms = 30000\n")
    name = f"region-{topic}"
    done = region("status", name, "-b", address, "--command-config", str(config), "--json")
    assert json.loads(done.stdout)["phase"] == "PROCESSING", done.stderr
    config.write_text("nonsense\n")
    done = region("status", name, "-b", address, "--command-config", str(config))
    assert f"{config}, line 1: not name=value" in done.stderr
    assert one.error is None


def test_a_stop_without_a_last_checkpoint_is_told(address: str, topic: str, tmp_path: Path) -> None:
    held, is_in = threading.Event(), threading.Event()

    def hold(*_: object) -> list[dict[str, int]]:
        is_in.set()
        held.wait(LONG_S)
        return []

    sink = ParquetDirectory(tmp_path)
    slow = worker(address, topic, sink, function=hold, period_ms=600_000, drain_timeout_ms=1_000)
    with running(slow) as (started,):
        assert is_in.wait(LONG_S)
        stopped = region("stop", f"region-{topic}", "-b", address)
        held.set()
        started.join()
    assert stopped.returncode == 1
    assert "without a last checkpoint" in stopped.stderr
    assert visible(tmp_path) == 0


class Away(ParquetDirectory):
    """A place that is not there for a while."""

    is_away = True

    def publish(self, *given: Any) -> None:
        if self.is_away:
            raise OSError("the directory is away")
        super().publish(*given)


def test_a_drain_waits_until_its_checkpoint_is_visible(
    address: str, topic: str, tmp_path: Path
) -> None:
    sink, name = Away(tmp_path), f"region-{topic}"
    with running(worker(address, topic, sink, mode="operator-driven")) as (one,):
        eventually(lambda: one.owned == 2, "it works")
        drained = region("drain", name, "-b", address, "--timeout", "3")
        assert drained.returncode == 1, drained.stdout
        told = " ".join(drained.stderr.split())
        assert "checkpoint 1 is complete but not visible within 3 s" in told
        assert "the log of the controller, one/" in told
        sink.is_away = False
        drained = region("drain", name, "-b", address)
        assert drained.returncode == 0, drained.stderr
        assert "checkpoint 2 is complete and visible" in drained.stdout
        assert visible(tmp_path) > 0


@pytest.mark.timeout(400)
def test_a_drain_that_a_reset_ends_is_asked_for_again(
    address: str, topic: str, tmp_path: Path
) -> None:
    """The checkpoint takes too long once, because the function does."""
    held, is_in = threading.Event(), threading.Event()

    def hold_once(
        partition: RegionPartition, records: Sequence[ConsumerRecord], state: KeyedState
    ) -> list[dict[str, int]]:
        is_in.set()
        held.wait(LONG_S)
        return running_sum(partition, records, state)

    sink = ParquetDirectory(tmp_path)
    slow = worker(
        address, topic, sink, function=hold_once, period_ms=600_000, drain_timeout_ms=1_000
    )
    with running(slow) as (started,):
        assert is_in.wait(LONG_S)
        command = [sys.executable, "-m", "kohort", "region", "drain", f"region-{topic}"]
        with subprocess.Popen([*command, "-b", address], stdout=subprocess.PIPE) as draining:
            eventually(lambda: attempt_of(started) > 1, "the region went back")
            is_in.clear()
            held.set()
            assert draining.wait(LONG_S) == 0
        # A checkpoint overtakes records that wait, so that one may have come before the first.
        assert is_in.wait(LONG_S)
        subprocess.run([*command, "-b", address], check=True, timeout=LONG_S)
        eventually(lambda: visible(tmp_path) > 0, "the checkpoint is published")


def attempt_of(one: Running) -> int:
    """Return the attempt that a worker knows of."""
    state = one.worker.state
    return 0 if state is None else state.attempt
