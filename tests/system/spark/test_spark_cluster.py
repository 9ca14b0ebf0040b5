"""Executors that are processes of their own, as on a cluster; an application is told to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kohort.spark import append, drain
from tests.delta.rows import Row, contents
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.foreign import new_topic
from tests.spark.playing import committed, describe, options, produce
from tests.spark.sessions import MARKS, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [*MARKS, pytest.mark.timeout(400)]
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
TIMEOUT_S = 120
# For an application of its own: two JVMs and a dozen processes start, on a machine that is busy.
PATIENCE_S = 600
APPLICATION = Path(__file__).parents[3] / "examples" / "spark_on_cluster" / "application.py"
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-Xss8m -XX:+UseSerialGC",
    "spark.pyspark.python": sys.executable,
}
# Never set: a look every so often.
PAUSE = threading.Event()


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkSession]:
    """Two executors of one core each, in JVMs of their own."""
    yield from session(spark__master="local-cluster[2,1,1024]", spark__executor__memory="512m")


def wait_until(condition: Callable[[], bool], patience_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + patience_s
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


def command_of(process: psutil.Process) -> list[str]:
    """Its command line, empty when it has ended."""
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


class Application:
    """The example of docs/spark-cluster.md under spark-submit, over all its starts."""

    def __init__(self, folder: Path, address: str, topic: str, master: str) -> None:
        self.address, self.topic = address, topic
        self.table, self.checkpoint = folder / "table", folder / "checkpoint"
        self.stop_file = folder / "stop"
        self._log = folder / "log"
        self._command = [
            str(Path(sys.executable).with_name("spark-submit")),
            f"--master={master}",
            *(f"--conf={key}={value}" for key, value in SETTINGS.items()),
            str(APPLICATION),
            f"--bootstrap-servers={address}",
            f"--topic={topic}",
            f"--group=group-of-{topic}",
            f"--table={self.table}",
            f"--checkpoint={self.checkpoint}",
            f"--stop-file={self.stop_file.as_uri()}",
            f"--drain-timeout={PATIENCE_S}",
            "--every=1 second",
        ]

    def start(self) -> None:
        self.stop_file.unlink(missing_ok=True)
        with self._log.open("ab") as log:
            self.jvm = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)

    def program(self) -> psutil.Process:
        """The Python process that runs the application, a child of spark-submit's JVM."""
        children = psutil.Process(self.jvm.pid).children()
        (found,) = [child for child in children if str(APPLICATION) in command_of(child)]
        return found

    def wait_for_rows(self, count: int) -> None:
        def there() -> bool:
            assert self.jvm.poll() is None, self._log.read_text()[-4000:]
            return rows_of(self.table) >= count

        wait_until(there, PATIENCE_S)

    def tell(self, way: str) -> int:
        """Tell it to stop; its exit code when all of it has ended."""
        program = self.program()
        if way == "file":
            self.stop_file.touch()
        else:
            os.kill(program.pid if way == "program" else self.jvm.pid, signal.SIGTERM)
        code = self.jvm.wait(PATIENCE_S)
        wait_until(lambda: not command_of(program), PATIENCE_S)
        return code

    def open_batches(self) -> set[int]:
        begun, over = (
            {int(file.name) for file in (self.checkpoint / name).iterdir() if file.name.isdigit()}
            for name in ("offsets", "commits")
        )
        return begun - over

    def close(self) -> None:
        """End what a failed test has left."""
        if self.jvm.poll() is None:
            for child in psutil.Process(self.jvm.pid).children(recursive=True):
                child.kill()
            self.jvm.kill()
            self.jvm.wait(TIMEOUT_S)


@contextmanager
def producing(address: str, topic: str, made: dict[int, int]) -> Iterator[None]:
    """Records go on coming; `made` counts them."""
    enough = threading.Event()

    def go_on() -> None:
        while not enough.wait(0.2):
            produce(address, topic, {0: 5, 1: 5})
            made.update({number: count + 5 for number, count in made.items()})

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "master", "ways"), [
    ("embedded", "local[2]", ["jvm", "file"]),
    ("kafka", "local-cluster[1,1,1024]", ["program", "file"]),
])  # fmt: skip
def test_an_application_drains_when_it_is_told_to_stop(
    kind: str, master: str, ways: list[str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """SIGTERM to its program or a file; SIGTERM to the JVM of spark-submit kills it in a batch."""
    broker = request.getfixturevalue("real_kafka") if kind == "kafka" else None
    address = broker.bootstrap_servers if broker else request.getfixturevalue("bootstrap")
    topic = new_topic(address, 2)
    application = Application(tmp_path, address, topic, master)
    made = {0: 0, 1: 0}
    try:
        for way in ways:
            application.start()
            with producing(address, topic, made):
                application.wait_for_rows(rows_of(application.table) + 20)
                if way != ways[-1]:
                    stopped(application, way)
        application.wait_for_rows(sum(made.values()))
        stopped(application, ways[-1])
    finally:
        application.close()
    found = contents(application.table)
    assert found.keys() == {(topic, number, at) for number in made for at in range(made[number])}
    assert set(found.values()) == {1}
    assert committed(address, topic, made) == made


def stopped(application: Application, way: str) -> None:
    """Stop it, and see that the group's offsets are what the table has."""
    code = application.tell(way)
    address, topic = application.address, application.topic
    wait_until(lambda: not describe(address, topic).members, PATIENCE_S)
    if way == "jvm":
        assert code == 128 + signal.SIGTERM
        return
    assert code == 0
    assert application.open_batches() == set()
    rows = contents(application.table)
    ends = {number: len([row for row in rows if row[1] == number]) for number in (0, 1)}
    assert committed(address, topic, ends) == ends
