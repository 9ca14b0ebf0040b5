"""Executors that are processes of their own, as on a cluster; one of them is killed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kohort.spark import append, drain
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.foreign import new_topic
from tests.spark.playing import committed, options, produce
from tests.spark.rows import Row, contents
from tests.spark.sessions import MARKS, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [*MARKS, pytest.mark.timeout(400)]
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
TIMEOUT_S = 120
# Never set: a look every so often.
PAUSE = threading.Event()


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkSession]:
    """Two executors of one core each, in JVMs of their own."""
    yield from session(spark__master="local-cluster[2,1,1024]", spark__executor__memory="512m")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        PAUSE.wait(0.1)


def held(rows: DataFrame, folder: Path) -> DataFrame:
    """Rows whose tasks note their process, and go on once there is a file `go`."""

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pause = threading.Event()
        for batch in batches:
            (folder / f"task-{os.getpid()}").touch()
            until = time.monotonic() + TIMEOUT_S
            while not (folder / "go").exists() and time.monotonic() < until:
                pause.wait(0.1)
            yield batch

    return rows.mapInArrow(hold, rows.schema)


def executors_of_tasks(folder: Path) -> dict[int, psutil.Process]:
    """The executors that run tasks, by their process."""
    found = {}
    for file in folder.glob("task-*"):
        if psutil.pid_exists(worker := int(file.name.removeprefix("task-"))):
            for parent in psutil.Process(worker).parents():
                if EXECUTOR in parent.cmdline():
                    found[parent.pid] = parent
    return found


def test_a_killed_executor_loses_nothing_and_repeats_nothing(
    cluster: SparkSession, real_kafka: RealKafka, tmp_path: Path
) -> None:
    address = real_kafka.bootstrap_servers
    topic = new_topic(address, 2)
    produce(address, topic, {0: 50, 1: 50})
    settings = options(address, topic, minPartitions="2")
    stream = cluster.readStream.format("kohort").options(**settings).load()
    rows = stream.selectExpr("topic", "partition", "offset", "cast(value as string) as v")
    query = append(
        held(rows, tmp_path),
        tmp_path / "table",
        checkpoint=tmp_path / "checkpoint",
        group_id=f"group-of-{topic}",
    )
    wait_until(lambda: len(executors_of_tasks(tmp_path)) == 2)
    victim = next(iter(executors_of_tasks(tmp_path).values()))
    assert os.getpid() not in executors_of_tasks(tmp_path)
    victim.kill()
    victim.wait(TIMEOUT_S)
    (tmp_path / "go").touch()

    wait_until(lambda: rows_of(tmp_path / "table") >= 100)
    produce(address, topic, {0: 50, 1: 50})
    wait_until(lambda: rows_of(tmp_path / "table") >= 200)
    drain(query)
    expected: set[Row] = {(topic, number, at) for number in (0, 1) for at in range(100)}
    found = contents(tmp_path / "table")
    assert found.keys() == expected
    assert set(found.values()) == {1}
    assert committed(address, topic, (0, 1)) == {0: 100, 1: 100}


def rows_of(table: Path) -> int:
    return contents(table).total() if DeltaTable.is_deltatable(str(table)) else 0
