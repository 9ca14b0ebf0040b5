"""Delays per aircraft, counted exactly once by two workers that join and leave.

One worker starts, a second joins, the first is stopped; the running sums in the output never lose
or repeat a flight, and the state of each aircraft moves with its partition. It needs no broker:

    python examples/region_of_workers.py
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence

from kohort import ConsumerRecord, EmbeddedBroker, Producer
from kohort.region import (
    KeyedState,
    ParquetDirectory,
    RegionConsumer,
    RegionPartition,
    read_directory,
)

AIRCRAFT, FLIGHTS, DELAY = 20, 3_000, 5


def delays(
    _partition: RegionPartition, records: Sequence[ConsumerRecord], state: KeyedState
) -> list[dict[str, object]]:
    """Return a row for each flight with the total delay of its aircraft so far."""
    rows: list[dict[str, object]] = []
    for record in records:
        aircraft = record.key.decode()
        state[aircraft] = state.get(aircraft, 0) + int(record.value)
        rows.append({"aircraft": aircraft, "delay": state[aircraft]})
    return rows


def produce(address: str, flights: int) -> None:
    """Write flights; all flights of an aircraft go to the same partition."""
    with Producer(bootstrap_servers=address) as producer:
        for number in range(flights):
            producer.send("flights", b"%d" % DELAY, key=b"D-%03d" % (number % AIRCRAFT))


def begin(address: str, path: str, operator: str) -> tuple[RegionConsumer, threading.Thread]:
    """Run a worker in a thread; on a cluster each would be a separate process."""
    worker = RegionConsumer(
        "delays",
        "flights",
        function=delays,
        sink=ParquetDirectory(path),
        operator=operator,
        group_id="delays",
        bootstrap_servers=address,
        period_ms=500,
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    return worker, thread


def wait_for(path: str, flights: int) -> None:
    """Read the output as any reader would, until all flights are in it."""
    pause = threading.Event()
    while read_directory(path).num_rows < flights:
        pause.wait(0.2)


def main() -> None:
    """Run the example."""
    with EmbeddedBroker() as broker, tempfile.TemporaryDirectory() as path:
        address = broker.bootstrap_servers
        broker.create_topic("flights", 4)
        produce(address, FLIGHTS)
        first, thread = begin(address, path, "first")
        wait_for(path, FLIGHTS)
        print(f"{FLIGHTS} flights are visible; a second worker joins")
        second, other = begin(address, path, "second")
        produce(address, FLIGHTS)
        wait_for(path, 2 * FLIGHTS)
        print(f"{2 * FLIGHTS} flights are visible; the first worker leaves")
        first.stop()
        thread.join()
        produce(address, FLIGHTS)
        wait_for(path, 3 * FLIGHTS)
        second.stop()
        other.join()
        table = read_directory(path)
        highest = max(table.column("delay").to_pylist())
        print(f"{table.num_rows} rows, the last sum is {highest}, as it must be")
        assert highest == 3 * FLIGHTS // AIRCRAFT * DELAY


if __name__ == "__main__":
    main()
