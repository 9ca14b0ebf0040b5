"""A worker of a region in a process of its own: `python -m tests.region.process ADDRESS ...`."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from kohort.client import ConsumerRecord
from kohort.region import DeltaSink, KeyedState, ParquetDirectory, RegionPartition, RegionSink
from kohort.region import worker as workers
from tests.region.regions import PROTOCOLS, SCHEMA, running_sum, worker

# Before the path of an output that is a Delta table.
DELTA = "delta:"
# So long each call takes, for kills to fall into it.
PAUSE_S = 0.01
# A short queue is full and empty again many times, so that reading stops and goes on.
workers.POLLS_WAITING = 2


def slow_sum(
    partition: RegionPartition, records: Sequence[ConsumerRecord], state: KeyedState
) -> list[dict[str, int]]:
    """Make the rows of `running_sum`, in no hurry."""
    threading.Event().wait(PAUSE_S)
    return running_sum(partition, records, state)


def main() -> None:
    """Run one worker until SIGTERM."""
    address, topic, path, operator, protocol, *group = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    sink: RegionSink = ParquetDirectory(path)
    if path.startswith(DELTA):
        sink = DeltaSink(path.removeprefix(DELTA), SCHEMA)
    protocol, _, rebalance = protocol.partition("/")
    settings: dict[str, Any] = {"period_ms": 500, "function": slow_sum, **PROTOCOLS[protocol]}
    settings["rebalance"] = rebalance or "checkpoint"
    if protocol != "consumer":
        settings |= {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000}
    if group:
        settings["group_id"] = group[0]
    one = worker(address, topic, sink, operator, **settings)
    signal.signal(signal.SIGTERM, lambda *_: one.stop())
    one.run()


if __name__ == "__main__":
    main()
