"""One operator of a region, or the same pipeline without one: a process of `benchmarks/region.py`.

It prints a JSON object for each event, and ends at SIGTERM.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kohort.client import Consumer, ConsumerRecord
from kohort.region import KeyedState, ParquetDirectory, RegionConsumer, RegionPartition

Function = Callable[[RegionPartition, Sequence[ConsumerRecord], KeyedState], pa.RecordBatch]


def say(**what: object) -> None:
    """Print an event."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def rows(records: Sequence[ConsumerRecord], state: dict[str, Any]) -> pa.RecordBatch:
    """Return the columns that both pipelines write, and update a sum."""
    state["sum"] = state.get("sum", 0) + sum(len(each.value or b"") for each in records)
    return pa.RecordBatch.from_pydict(
        {
            "partition": [each.partition for each in records],
            "offset": [each.offset for each in records],
            "value": [each.value for each in records],
        }
    )


class Meter:
    """Measures the rate at which a function gets records.

    Args:
        count: The number of records after which the rate is printed.
        gaps: Whether to print each call, to find pauses.
    """

    def __init__(self, count: int, *, gaps: bool = False) -> None:
        self.is_over = threading.Event()
        self._count = count
        self._gaps = gaps
        self._seen = 0
        self._began = 0.0

    def __call__(
        self, partition: RegionPartition, records: Sequence[ConsumerRecord], state: KeyedState
    ) -> pa.RecordBatch:
        """Be the function of a region."""
        made = rows(records, state)
        self.note(partition.partition, records)
        return made

    def note(self, partition: int, records: Sequence[ConsumerRecord]) -> None:
        """Count records."""
        self._began = self._began or time.perf_counter()
        self._seen += len(records)
        if self._gaps:
            first, last = records[0].offset, records[-1].offset
            say(at=time.time(), partition=partition, first=first, last=last)
        if self._count and self._seen >= self._count and not self.is_over.is_set():
            say(rate=self._seen / (time.perf_counter() - self._began))
            self.is_over.set()


def region(address: str, topic: str, path: str, operator: str, settings: dict[str, Any]) -> None:
    """Run an operator."""
    meter = Meter(settings.pop("count", 0), gaps=settings.pop("gaps", False))
    worker = RegionConsumer(
        settings.pop("region"),
        topic,
        function=meter,
        sink=ParquetDirectory(path),
        operator=operator,
        bootstrap_servers=address,
        **settings,
    )
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()


def plain(address: str, topic: str, path: str, settings: dict[str, Any]) -> None:
    """Read, call the function, write a file and commit each period, without a region."""
    meter = Meter(settings["count"])
    state: dict[str, Any] = {}
    period_s = settings["period_ms"] / 1000
    with Consumer(
        topic,
        bootstrap_servers=address,
        group_id=settings["group_id"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        made: list[pa.RecordBatch] = []
        due, number = time.monotonic() + period_s, 0
        while not meter.is_over.is_set():
            for place, records in consumer.poll(100).items():
                made.append(rows(records, state))
                meter.note(place.partition, records)
            if made and (time.monotonic() > due or meter.is_over.is_set()):
                pq.write_table(pa.Table.from_batches(made), Path(path, f"{number}.parquet"))
                consumer.commit()
                made, number, due = [], number + 1, time.monotonic() + period_s


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["region", address, topic, path, operator, given]:
            region(address, topic, path, operator, json.loads(given))
        case ["plain", address, topic, path, given]:
            plain(address, topic, path, json.loads(given))
