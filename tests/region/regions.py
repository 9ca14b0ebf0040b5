"""Workers of regions for tests, and what a reader of their output may see."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kohort.client import AdminClient, ConsumerRecord, NewTopic, Producer
from kohort.region import (
    KeyedState,
    ParquetDirectory,
    RegionConsumer,
    RegionPartition,
    RegionSink,
)

LONG_S = 120.0
# Of the rows of `running_sum`.
SCHEMA = pa.schema([(name, pa.int64()) for name in ("partition", "offset", "value", "sum")])

# How members of each protocol are made.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": ["range"], "session_timeout_ms": 10_000},
    "cooperative": {
        "partition_assignment_strategy": ["cooperative-sticky"],
        "session_timeout_ms": 10_000,
    },
    "consumer": {"group_protocol": "consumer"},
}


def eventually(holds: Callable[[], bool], what: str, within_s: float = LONG_S) -> None:
    """Wait until it is so.

    Raises:
        AssertionError: It is not, for a long time.
    """
    pause = threading.Event()
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, f"not within {within_s:g} s: {what}"
        pause.wait(0.05)


def produce(address: str, topic: str, partitions: int, count: int, first: int = 0) -> None:
    """Write numbers, one partition after the other in turn."""
    with Producer(bootstrap_servers=address) as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%d" % number, partition=number % partitions)


def running_sum(
    partition: RegionPartition, records: Sequence[ConsumerRecord], state: KeyedState
) -> list[dict[str, int]]:
    """Make a row of each record, with the sum of its partition up to there."""
    rows = []
    for record in records:
        state["sum"] = state.get("sum", 0) + int(record.value)
        rows.append(
            {
                "partition": partition.partition,
                "offset": record.offset,
                "value": int(record.value),
                "sum": state["sum"],
            }
        )
    return rows


class Counting:
    """A `running_sum` that counts how often it was given each record."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.given: Counter[tuple[int, int]] = Counter()
        self._pause = threading.Event()
        self._pause_s = pause_s

    def __call__(
        self, partition: RegionPartition, records: Sequence[ConsumerRecord], state: KeyedState
    ) -> list[dict[str, int]]:
        self._pause.wait(self._pause_s)
        self.given.update((record.partition, record.offset) for record in records)
        return running_sum(partition, records, state)

    @property
    def repeated(self) -> dict[tuple[int, int], int]:
        """Records that were given more than once."""
        return {place: count for place, count in self.given.items() if count > 1}


class Running:
    """A worker in a thread."""

    def __init__(self, worker: RegionConsumer) -> None:
        self.worker = worker
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.worker.run()
        except BaseException as error:  # noqa: BLE001  # the test looks at it
            self.error = error

    @property
    def is_over(self) -> bool:
        """Whether `run` has returned or raised."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End it in order."""
        self.worker.stop()
        self.join()

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join(LONG_S)
        assert self.is_over, "the worker does not end"

    @property
    def completed(self) -> int:
        """The last complete checkpoint that it knows of."""
        state = self.worker.state
        return 0 if state is None else state.completed

    @property
    def owned(self) -> int:
        """How many partitions it owns."""
        state = self.worker.state
        name = self.worker.operator
        if state is None or name not in state.operators:
            return 0
        return len(state.operators[name].owned)


def worker(
    address: str,
    topic: str,
    sink: RegionSink,
    operator: str = "one",
    function: Any = running_sum,
    **settings: Any,
) -> RegionConsumer:
    """Make a worker of a region, which by default is named after its topic."""
    region = settings.pop("region", f"region-{topic}")
    usual: dict[str, Any] = {
        "group_id": f"group-{topic}",
        "period_ms": 300,
        "max_poll_records": 50,
        "bootstrap_servers": address,
    }
    return RegionConsumer(
        region,
        topic,
        function=function,
        sink=sink,
        operator=operator,
        **(usual | settings),
    )


@contextmanager
def running(*workers: RegionConsumer) -> Iterator[list[Running]]:
    """Run workers; they end in order, unless they have ended already."""
    started = [Running(each) for each in workers]
    try:
        yield started
    except BaseException as failure:
        for each in started:
            if each.error is not None:
                failure.add_note(f"{each.worker.operator} has ended: {each.error!r}")
        raise
    finally:
        for each in started:
            each.worker.stop()
        for each in started:
            each.join()


def name_of_topic() -> str:
    """Return a name that no other test has."""
    return f"t-{uuid.uuid4().hex[:10]}"


def new_topic(address: str, partitions: int = 4) -> str:
    """Make a topic that no other test has, and return its name."""
    name = name_of_topic()
    with AdminClient(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(name, partitions)])
    return name


def visible(path: Path) -> int:
    """Look at the output as a reader does, and return how many rows it sees.

    Raises:
        AssertionError: A checkpoint is not the continuation of those before: a record is missing,
            is there twice, or carries a state that is not that of its partition.
    """
    positions: dict[int, int] = defaultdict(int)
    sums: dict[int, int] = defaultdict(int)
    for manifest in ParquetDirectory(path).manifests():
        rows = [
            row
            for file in manifest["files"]
            for row in pq.ParquetFile(path / file["path"]).read().to_pylist()
        ]
        for row in sorted(rows, key=lambda row: (row["partition"], row["offset"])):
            at = row["partition"]
            where = f"checkpoint {manifest['checkpoint']}, partition {at}"
            assert row["offset"] == positions[at], where
            positions[at] += 1
            sums[at] += row["value"]
            assert row["sum"] == sums[at], where
    return sum(positions.values())
