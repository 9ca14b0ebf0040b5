"""One source in one scenario: it reads, its world changes, it reads on; and what came of it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kohort.spark.source.position_resolver import MISSING_GRACE_S
from tests.spark.playing import PROTOCOLS
from tests.spark.sessions import TRIGGERS
from tests.system.spark.differential.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# For a machine that is busy with something else.
DEADLINE_S = 120
# Longer than a topic may be missing before our source takes it for deleted.
PATIENCE_S = int(MISSING_GRACE_S) + 15
BROKEN = "the sink is broken"
OURS, SPARKS = "kohort", "kafka"
Make = Callable[[World], None]
Cells = tuple[object, ...]


@dataclass(frozen=True)
class Outcome:
    """What a source made of a scenario.

    Attributes:
        rows: The rows in the sink; names are without the side's ending.
        schema: The columns, as JSON; empty without a `load()`.
        moment: When it failed: "load", "first run", "after the change"; "never" if it did not.
        error: What it said.
    """

    rows: Counter[Cells]
    schema: str
    moment: str
    error: str


class Story:
    """Runs one source through a scenario.

    Args:
        spark: The session.
        world: The topics of this side.
        options: The options that the scenario is about.
        protocol: How our group agrees; "-" for no group.
        sink: Where the rows go: "batch" is a batch read, the others take a stream.
        folder: For checkpoint and files.
    """

    def __init__(
        self,
        spark: SparkSession,
        world: World,
        options: Mapping[str, str],
        protocol: str,
        sink: str,
        folder: Path,
    ) -> None:
        self._spark = spark
        self._world = world
        self._options = options
        self._protocol = protocol
        self._sink = sink
        self._folder = folder
        name = f"{world.scenario}_{world.side}".lower()  # as Spark's catalogue has it
        self._table = "".join(c if c.isalnum() else "_" for c in name)
        self._taken: list[Row] = []
        self._in_batch: Callable[[], None] | None = None
        self._has_acted = True
        self._trouble: Exception | None = None
        self._schema = ""
        self._moment = "load"

    def tell(self, moment: str, change: Make) -> Outcome:
        """Run the scenario to its end or to its first error.

        Raises:
            AssertionError: The query does not come to an end.
            Exception: The change itself has failed.
        """
        told = {
            "before": self._before,
            "during": self._during,
            "between": self._between,
            "down": self._down,
            "replay": self._replay,
        }
        outcome = self._told(told[moment], change)
        if self._trouble is not None:
            raise self._trouble
        return outcome

    def _told(self, story: Callable[[Callable[[], None]], None], change: Make) -> Outcome:
        try:
            story(lambda: self._act(change))
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001  # what it is, is compared
            return self._outcome(self._moment, self._world.plain(str(error)))
        return self._outcome("never", "")

    def _act(self, change: Make) -> None:
        try:
            change(self._world)
        except Exception as error:
            self._trouble = error
            raise

    # ------------------------------------------------------------------------------------ moments

    def _before(self, change: Callable[[], None]) -> None:
        """The world has changed before the source starts."""
        change()
        if self._sink == "batch":
            frame = self._load()
            self._moment = "first run"
            self._taken += frame.collect()
        else:
            self._read_to_the_end("first run")

    def _during(self, change: Callable[[], None]) -> None:
        """While the first batch is in the sink's hands; the query reads on."""
        self._in_batch, self._has_acted = change, False
        self._run("after the change", self._until_settled)

    def _between(self, change: Callable[[], None]) -> None:
        """While the query waits for its next batch."""

        def change_when_idle(query: StreamingQuery) -> None:
            self._until_settled(query)
            self._moment = "after the change"
            before = len(self._world.read)
            change()
            self._until_settled(query)
            if len(self._world.read) < before:  # ours reads on for a while: the topic may come back
                query.awaitTermination(PATIENCE_S)

        self._run("first run", change_when_idle)

    def _down(self, change: Callable[[], None]) -> None:
        """While the query is stopped; it starts again from its checkpoint."""
        self._read_to_the_end("first run")
        change()
        self._read_to_the_end("after the change")

    def _replay(self, change: Callable[[], None]) -> None:
        """While the query is stopped with an open batch, which Spark repeats when it starts."""
        self._in_batch = self._fail
        try:
            self._read_to_the_end("first run")
        except Exception as error:
            if BROKEN not in str(error):
                raise
        self._until_left()
        change()
        self._read_to_the_end("after the change")

    def _fail(self) -> None:
        self._taken.clear()
        raise RuntimeError(BROKEN)

    # ----------------------------------------------------------------------------------- running

    def _read_to_the_end(self, moment: str) -> None:
        def wait(query: StreamingQuery) -> None:
            assert query.awaitTermination(DEADLINE_S), "the query does not end"

        self._run(moment, wait, "availableNow")
        self._until_left()

    def _run(
        self, moment: str, wait: Callable[[StreamingQuery], None], trigger: str = "continuous"
    ) -> None:
        """Start the query, wait for what is to be waited for, and stop it."""
        self._moment = "load" if moment == "first run" else moment
        writer = self._writer()
        self._moment = moment
        query = writer.trigger(**TRIGGERS[trigger]).start()
        try:
            wait(query)
        finally:
            query.stop()

    def _until_settled(self, query: StreamingQuery) -> None:
        """Wait until the query has finished a batch that ends where the topics end."""
        end = time.monotonic() + DEADLINE_S
        while not query.awaitTermination(1):
            if self._has_acted and positions(query) == self._ends():
                return
            assert time.monotonic() < end, f"{positions(query)} is not the end, {self._ends()}"

    def _ends(self) -> dict[tuple[str, int], int]:
        world = self._world
        found = {(world.name(topic), p): at for topic in world.read
                 for p, at in world.ends(topic).items()}  # fmt: skip
        return {place: at for place, at in found.items() if at}

    def _until_left(self) -> None:
        if self._world.side == OURS and self._protocol in PROTOCOLS:
            self._world.until_the_group_is_empty()

    def _load(self) -> DataFrame:
        world, is_stream = self._world, self._sink != "batch"
        given: dict[str, str] = {"kafka.bootstrap.servers": world.bootstrap}
        if not {"assign", "subscribePattern"} & self._options.keys():
            given["subscribe"] = world.topic
        if is_stream:
            given["startingOffsets"] = "earliest"
        if world.side == OURS and is_stream:
            mode = PROTOCOLS.get(self._protocol, {"groupMode": self._protocol})
            given |= {"kafka.group.id": world.group, "kafka.client.id": "north", **mode}
        given |= {k: self._named(v) for k, v in ({**self._options, **world.options}).items()}
        reader = self._spark.readStream if is_stream else self._spark.read
        frame = reader.format(world.side).options(**given).load()
        self._schema = frame.schema.json()
        return frame

    def _named(self, value: str) -> str:
        """An option of the table, where `"t"` stands for the topic of that name."""
        for topic in ("t", "other", "gone"):
            value = value.replace(f'"{topic}"', f'"{self._world.name(topic)}"')
            value = value.replace(f"<{topic}>", self._world.name(topic))
        return value.replace("<scenario>", self._world.scenario).replace("<side>", self._world.side)

    def _writer(self) -> DataStreamWriter:
        writer = self._load().writeStream
        if self._sink == "memory":
            return writer.format("memory").queryName(self._table)
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        if self._sink == "parquet":
            return writer.format("parquet").option("path", str(self._folder / "rows"))
        return writer.foreachBatch(self._take)

    def _take(self, frame: DataFrame, _batch_id: int) -> None:
        rows = frame.collect()
        self._taken += rows
        if self._in_batch is not None and rows:
            act, self._in_batch = self._in_batch, None
            act()
            self._has_acted = True

    # ------------------------------------------------------------------------------------ outcome

    def _outcome(self, moment: str, error: str) -> Outcome:
        return Outcome(Counter(map(self._cells, self._rows())), self._schema, moment, error)

    def _rows(self) -> list[Row]:
        if self._sink == "memory":
            tables = [each.name for each in self._spark.catalog.listTables()]
            return self._spark.table(self._table).collect() if self._table in tables else []
        if self._sink == "parquet":
            files = self._folder / "rows"
            return (
                self._spark.read.parquet(str(files)).collect()
                if any(files.glob("*.parquet"))
                else []
            )
        return self._taken

    def _cells(self, row: Row) -> Cells:
        return tuple(self._plain(cell) for cell in row)

    def _plain(self, cell: Any) -> object:
        if isinstance(cell, bytearray):
            return bytes(cell)
        if isinstance(cell, list):
            return tuple(tuple(map(self._plain, each)) for each in cell)
        return self._world.plain(cell) if isinstance(cell, str) else cell


def positions(query: StreamingQuery) -> dict[tuple[str, int], int]:
    """Where the last finished batch ended; ours says where it began, too."""
    progress = query.lastProgress
    if progress is None:
        return {}
    end = progress["sources"][0]["endOffset"]
    parsed = json.loads(end) if isinstance(end, str) else end or {}
    topics: dict[str, dict[str, Any]] = parsed.get("topics", parsed)
    found = {
        (topic, int(number)): at[1] if isinstance(at, list) else at
        for topic, numbers in topics.items()
        for number, at in numbers.items()
    }
    return {place: at for place, at in found.items() if at}
