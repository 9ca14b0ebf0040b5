"""A Spark application of a torture run: starts and ends queries of one group, as it is told.

python -m tests.system.spark.torture.application HOME

Each line on its standard input is a command as JSON, each on its standard output the answer. The
application is killed in the middle of things, so what it knows is in files below HOME: the table,
the checkpoints and `appended`, the sink that only appends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from kohort.errors import KohortError
from kohort.spark import DeltaAppend, drain
from tests.spark.sessions import TRIGGERS, small_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DEADLINE_S = 300
# A run that reads nothing for so long is not waited for.
QUIET_S = 3.0


@dataclass
class Run:
    """One start of a query."""

    query: StreamingQuery
    pid: int
    rows: list[int]


class Application:
    """The queries of this process.

    Args:
        spark: The session.
        home: Where table, checkpoints and the appending sink are.
    """

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self._spark = spark
        self._home = home
        self._runs: dict[str, Run] = {}

    def do(self, command: Mapping[str, object]) -> str:
        """Carry a command out; the answer says how a run ended, or nothing."""
        action, name = str(command["action"]), str(command["query"])
        if action == "start":
            return self._start(name, command)
        if action == "rows":
            return self._await_rows(name, command["number"])
        acts: dict[str, Callable[[Run], None]] = {
            "stop": lambda run: run.query.stop(),
            "drain": lambda run: drain(run.query),
            "kill": kill,
            "end": lambda run: _await(run.query),
        }
        run = self._runs.pop(name)
        return ended(run, acts[action])

    def _start(self, name: str, command: Mapping[str, object]) -> str:
        before = set(sources())
        rows = [0]
        query = self._query(name, command, rows)
        self._runs[name] = Run(query, _new_source(before, query), rows)
        return ""

    def _query(self, name: str, command: Mapping[str, object], rows: list[int]) -> StreamingQuery:
        options: Mapping[str, str] = command["options"]  # type: ignore[assignment]  # parsed JSON
        frame = self._spark.readStream.format("kohort").options(**options).load()
        sink = Sink(self._home, str(command["run"]), options["kafka.group.id"], rows)
        columns = frame.selectExpr("topic", "partition", "offset", "cast(value as string) v")
        writer = columns.writeStream.foreachBatch(sink).queryName(name)
        writer = writer.option("checkpointLocation", str(self._home / name))
        return writer.trigger(**TRIGGERS[str(command["trigger"])]).start()

    def _await_rows(self, name: str, number: object) -> str:
        """Wait until the run has read so many more records, as long as it goes on reading."""
        run = self._runs[name]
        assert isinstance(number, int)
        wanted, quiet = run.rows[0] + number, time.monotonic() + QUIET_S
        while run.rows[0] < wanted and time.monotonic() < quiet:
            if has_ended(run.query):
                break
        return ""


class Sink:
    """Appends a line for each batch, and the batch to the Delta table.

    Args:
        home: Where both are.
        run: Names the start of the query.
        group: The query's group.
        rows: Counts the records that came.
    """

    def __init__(self, home: Path, run: str, group: str, rows: list[int]) -> None:
        self._home = home
        self._run = run
        self._rows = rows
        self._table = DeltaAppend(home / "table", group)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        found = [[row.partition, row.offset] for row in frame.collect()]
        line = {"run": self._run, "number": batch_id, "records": found}
        with (self._home / "appended" / self._run).open("a") as file:
            file.write(json.dumps(line) + "\n")
        self._table(frame, batch_id)
        self._rows[0] += len(found)


def ended(run: Run, act: Callable[[Run], None]) -> str:
    """End a run, and say how it ended."""
    from pyspark.errors import StreamingQueryException

    try:
        act(run)
    except (StreamingQueryException, KohortError) as error:
        return f"failed: {error}"
    finally:
        run.query.stop()
    failure = run.query.exception()
    return f"failed: {failure}" if failure is not None else "ended"


def kill(run: Run) -> None:
    """Kill the source's process; the query ends when it notices."""
    if run.query.isActive and psutil.pid_exists(run.pid):
        os.kill(run.pid, 9)
    _await(run.query)


def has_ended(query: StreamingQuery) -> bool:
    """Wait a moment for the end of a query, be it a failure; whether it has come."""
    from pyspark.errors import StreamingQueryException

    try:
        return bool(query.awaitTermination(1))
    except StreamingQueryException:
        return True


def _await(query: StreamingQuery) -> None:
    assert query.awaitTermination(DEADLINE_S), f"{query.name} does not end"


def sources() -> Iterator[int]:
    """The processes of sources in this application."""
    for process in psutil.Process().children(recursive=True):
        try:
            if any("streaming_source_runner" in word for word in process.cmdline()):
                yield process.pid
        except psutil.Error:
            continue


def _new_source(before: Iterable[int], query: StreamingQuery) -> int:
    """The process of a query that has just been started; 0 if the query ended without one."""
    while not has_ended(query):
        found = set(sources()) - set(before)
        if found:
            return found.pop()
    return 0


def say(answer: str) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> None:
    home = Path(sys.argv[1])
    with small_session() as spark:
        application = Application(spark, home)
        say("ready")
        for line in sys.stdin:
            say(application.do(json.loads(line)))


if __name__ == "__main__":
    main()
