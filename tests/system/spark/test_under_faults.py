"""The source under faults drawn at random: nothing lost; of a query alone, nothing twice either.

Each seed is a history of queries that trigger, stop with and without an open batch, and start
again, while the broker refuses, delays, loses and cuts answers. Sinks write a repeated batch over.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kohort.broker import EmbeddedBroker
from kohort.errors import KohortError
from kohort.spark.source import member as source_member
from tests.broker.drawn_faults import drawn_fault
from tests.broker.processes import eventually
from tests.spark.playing import PROTOCOLS, PlayedQuery, Row, as_rows, options, produce

TOPIC = "t"
# Faults of what the source asks for.
APIS = (
    "OffsetCommit",
    "OffsetFetch",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "ConsumerGroupHeartbeat",
    "FindCoordinator",
    "ListOffsets",
    "Fetch",
    "Metadata",
)
STEPS = ("produce", *["trigger"] * 3, "offer", "stop", "start", "start", "fault", "fault")


class Restarted:
    """A query over all its runs, with one checkpoint and a sink that knows batches by number."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.sink: dict[int, list[Row]] = {}
        self._settings = settings
        self._last: dict[str, Any] | None = None
        self._open: dict[str, Any] | None = None
        self._is_written = False
        self._query: PlayedQuery | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no batch is open."""
        return self._open is None

    def start(self) -> None:
        """Start it if it does not run; Spark repeats a batch that was open."""
        if self._query is None:
            self._query = PlayedQuery(dict(self._settings), self._last)
            self._is_written = False
            self._write()

    def trigger(self, *, writes: bool = True) -> None:
        """Finish the open batch and begin the next; without writing it, the query may stop so."""
        if self._query is None:
            return
        self._write()
        if self._open is not None:
            self._last, self._open = self._open, None
        self._query.last, self._query.open = self._last, None
        self._query.offer()
        self._last, self._open, self._is_written = self._query.last, self._query.open, False
        if writes:
            self._write()

    def stop(self) -> None:
        """Stop it, as it is."""
        query, self._query = self._query, None
        if query is not None:
            query.reader.stop()

    def _write(self) -> None:
        if self._open is None or self._is_written or self._query is None:
            return
        reader = self._query.reader
        tasks = reader.partitions(self._last or {}, self._open)
        rows = [row for task in tasks for batch in reader.read(task) for row in as_rows(batch)]
        self.sink[int(json.loads(json.dumps(self._open))["batch"])] = rows
        self._is_written = True


class History:
    """One history of queries that share a group."""

    def __init__(self, broker: EmbeddedBroker, protocol: str, names: str, chance: Random) -> None:
        self.produced: Counter[int] = Counter()
        self._broker = broker
        self._chance = chance
        servers, more = broker.bootstrap_servers, {"startingOffsets": "earliest"}
        more["checkpointLocation"] = "/is-not-there"  # so that they may share their group
        if (
            protocol != "consumer"
        ):  # a member that was told that it is unknown leaves nothing behind
            more["kafka__session__timeout__ms"] = "6000"
        self._queries = [
            Restarted(options(servers, TOPIC, protocol, kafka__client__id=name, **more))
            for name in names
        ]

    def step(self) -> None:
        """Let something happen; a query that fails stops."""
        action, query = self._chance.choice(STEPS), self._chance.choice(self._queries)
        if action == "produce":
            counts = {number: self._chance.randint(0, 5) for number in range(4)}
            produce(self._broker.bootstrap_servers, TOPIC, counts)
            self.produced.update(counts)
        elif action == "fault":
            self._broker.faults.add(drawn_fault(self._chance, APIS))
        else:
            self._do(query, action)

    def _do(self, query: Restarted, action: str) -> None:
        try:
            if action == "start":
                query.start()
            elif action == "stop":
                query.stop()
            else:
                query.trigger(writes=action == "trigger")
        except KohortError:
            query.stop()

    def end(self) -> Counter[Row]:
        """Let all be read; return how often each row is in a sink."""
        self._broker.faults.clear()
        try:
            eventually(self._has_all, "all records")
        finally:
            for query in self._queries:
                query.stop()
        return self.rows()

    def _has_all(self) -> bool:
        for query in self._queries:
            self._do(query, "start")
            self._do(query, "trigger")
        return self.wanted() <= self.rows().keys() and all(each.is_idle for each in self._queries)

    def wanted(self) -> set[Row]:
        """Return the rows that there are in the topic."""
        return {(number, at) for number, count in self.produced.items() for at in range(count)}

    def rows(self) -> Counter[Row]:
        """Return how often each row is in a sink."""
        return Counter(
            row for query in self._queries for batch in query.sink.values() for row in batch
        )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("names", ["a", "ab"])
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost(
    tmp_path: Path, protocol: str, names: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_member, "LAST_MESSAGE_WAIT_S", 0.5)
    chance = Random(f"{protocol} {names} {seed}")
    with EmbeddedBroker(tmp_path, group_consumer_heartbeat_interval_ms=100) as broker:
        broker.create_topic(TOPIC, 4)
        history = History(broker, protocol, names, chance)
        for _ in range(chance.randint(8, 25)):
            history.step()
        rows = history.end()
    assert rows.keys() == history.wanted()
    # Two queries may both have a batch that one left open: each writes it until one commits.
    assert len(names) > 1 or set(rows.values()) <= {1}
