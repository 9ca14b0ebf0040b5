"""Flights through workers that join, leave and are killed, into a table that is always correct.

Three workers of a region write the flights of 2013 into one Delta table, each with the total delay
of its aircraft so far, in minutes. One is killed with SIGKILL, a fourth joins, one leaves properly,
and the topic gets two more partitions. Meanwhile a reader checks every version of the table: each
is a consistent cut, and in the end the table matches the flights sent. Each part is a separate
process, and its output is in the output folder. Use your own broker or the embedded one:

    python examples/region.py [--bootstrap-servers HOST:PORT] [--quick] [--json] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import subprocess
import sys
import threading
import time
import uuid
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeAlias

import pyarrow as pa
from deltalake import DeltaTable
from story import StoryError, command_line, parsed, run, tell

from kohort import AdminClient, ConsumerRecord, Producer
from kohort.client import NewTopic, RecordMetadata
from kohort.demo.flights import Flight, in_order, load_table
from kohort.region import DeltaSink, KeyedState, RegionConsumer, RegionPartition

PARTITIONS, MORE = 4, 6
FLIGHTS, A_TURN = 20_000, 25
QUICK_FLIGHTS, QUICK_A_TURN = 1_000, 8
TURN_S, LOOK_S = 0.05, 0.2

COLUMNS = {"partition": pa.int32(), "offset": pa.int64(), "aircraft": pa.string()}
COLUMNS |= {"delay": pa.int64(), "total": pa.int64()}
Row: TypeAlias = tuple[int, int, str, int, int]
"""The values of COLUMNS."""


# ------------------------------------------------------------------------------------- a worker


def rows_of(
    worker: str, at: RegionPartition, records: Sequence[ConsumerRecord], state: KeyedState
) -> list[dict[str, object]]:
    """Return a row for each flight, with the total delay of its aircraft so far, in minutes."""
    rows: list[dict[str, object]] = []
    for record in records:
        aircraft, delay = (record.key or b"").decode(), delay_of(record.value or b"")
        state[aircraft] = state.get(aircraft, 0) + delay
        values = (at.partition, record.offset, aircraft, delay, state[aircraft])
        rows.append({**dict(zip(COLUMNS, values, strict=True)), "worker": worker})
    return rows


def delay_of(flight: bytes) -> int:
    """Return the delay of a flight at departure, in minutes; 0 if it did not depart."""
    return json.loads(flight)["dep_delay"] or 0


def work(given: argparse.Namespace) -> None:
    """Be a worker until SIGTERM."""
    worker = RegionConsumer(
        given.run,
        given.run,
        function=partial(rows_of, given.role),
        sink=DeltaSink(given.out / "table", pa.schema([*COLUMNS.items(), ("worker", pa.string())])),
        operator=given.role,
        group_id=given.run,
        bootstrap_servers=given.bootstrap_servers,
        period_ms=500,
        partition_assignment_strategy=["cooperative-sticky"],
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
    )
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()


# ------------------------------------------------------------------------------------ the reader


def read(given: argparse.Namespace) -> None:
    """Check every version of the table until SIGTERM, and print a line of JSON about each."""
    told, next_version, shown = threading.Event(), 0, Counter[int]()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    path = given.out / "table"
    with (given.out / "snapshots.jsonl").open("a") as result:
        is_last = False
        while not is_last:
            is_last = told.wait(LOOK_S)  # then it checks once more
            newest = DeltaTable(path).version() if DeltaTable.is_deltatable(str(path)) else -1
            for version in range(next_version, newest + 1):
                table = DeltaTable(path, version=version).to_pyarrow_table()
                wrong, shown = checked(rows_in(table), shown)
                workers = sorted(set(table["worker"].to_pylist()))
                told_of = {"version": version, "shown": shown, "workers": workers, "wrong": wrong}
                result.write(json.dumps(told_of) + "\n")
                result.flush()
            next_version = newest + 1


def rows_in(table: pa.Table) -> list[Row]:
    """Return the rows of a table."""
    return list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


def checked(rows: Iterable[Row], before: Counter[int]) -> tuple[str, Counter[int]]:
    """Return why rows are not a cut, or an empty text, and the number of flights per partition."""
    totals: dict[tuple[int, str], int] = defaultdict(int)
    shown = Counter[int]()
    for number, offset, aircraft, delay, total in sorted(rows):
        at = f"partition {number}, offset {offset}"
        if offset != shown[number]:
            return f"{at} where offset {shown[number]} belongs", shown
        totals[number, aircraft] += delay
        if total != totals[number, aircraft]:
            return f"{at}: total {total}, not {totals[number, aircraft]}", shown
        shown[number] += 1
    if shrunk := sorted(before - shown):
        return f"partition {shrunk[0]}: fewer flights than the version before", shown
    return "", shown


# ------------------------------------------------------------------------------------- the story


def flights_of_2013() -> Iterator[Flight]:
    """Yield the flights in order; the first one takes a second, during which workers start."""
    yield from in_order(load_table())


class Story:
    """The sequence of events, run by one thread: while it waits, it sends flights and watches.

    Attributes:
        run: Name of the region, its group and its topic.
        truth: The rows that must be in the table at the end.
        snapshots: Number of versions of the table that the reader has checked.
        address: The broker's address.
        processes: The running processes by name.
        a_turn: Number of flights sent at a time.
    """

    program: ClassVar[str] = __file__
    patience_s: ClassVar[float] = 120.0

    def __init__(self, address: str, out: Path, a_turn: int) -> None:
        self.run = f"flights-{uuid.uuid4().hex[:8]}"
        self.truth, self.snapshots = list[Row](), 0
        self.address, self._out = address, out
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._leaving: set[str] = set()
        self._partitions, self.a_turn = PARTITIONS, a_turn
        self._flights, self._producer = flights_of_2013(), Producer(bootstrap_servers=address)
        self._futures: list[Future[RecordMetadata]] = []
        self._totals: dict[tuple[int, str], int] = defaultdict(int)
        self._sent, self._shown, self._workers = Counter[int](), Counter[int](), set[str]()
        self._lines, self._rest = (out / "snapshots.jsonl").open("a+"), ""

    def play(self, flights: int, *, kill: bool) -> None:
        """Run all steps, one after the other, while flights are sent."""
        with AdminClient(bootstrap_servers=self.address) as admin:
            admin.create_topics([NewTopic(self.run, PARTITIONS)])
            self.start("reader")
            self.join("one", "two", "three")
            if kill:
                self.kill("two")
            self.join("four")
            self.stop("one")
            self.show_all("worker one has left in order")
            admin.create_partitions({self.run: MORE})
        self._partitions = MORE
        tell(f"partitions {PARTITIONS} -> {MORE}")
        added = range(PARTITIONS, MORE)
        self.wait(lambda: all(self._shown[each] for each in added), "flights of new partitions")
        self.wait(lambda: len(self.truth) >= flights, "all flights are sent")
        self.a_turn = 0
        self.show_all(f"all {len(self.truth):,} flights are sent")
        self.stop(*self.processes.keys() - self._leaving - {"reader"})
        self.stop("reader")
        self.listen()
        self.check_offsets()

    def close(self) -> None:
        """End all remaining processes."""
        for process in self.processes.values():
            process.kill()
            process.wait()
        self._lines.close()
        self._producer.close()

    def start(self, *names: str) -> None:
        """Start processes."""
        for name in names:
            command = [sys.executable, self.program, "--role", name, "--run", self.run]
            command += ["--bootstrap-servers", self.address, "--out", str(self._out)]
            with (self._out / f"{name}.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(  # noqa: S603  # starts itself
                    command, stdin=subprocess.PIPE, stdout=log, stderr=log
                )

    def join(self, *names: str) -> None:
        """Start workers, and wait until the table has flights from each."""
        self.start(*names)
        tell(f"workers join: {', '.join(names)}")
        self.wait(lambda: self._workers.issuperset(names), f"flights of {', '.join(names)}")

    def kill(self, name: str) -> None:
        """Kill a worker, and wait until the others have taken over."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()
        self.show_all(f"worker {name} is killed")

    def stop(self, *names: str) -> None:
        """End processes with SIGTERM, which makes a worker hand over its partitions."""
        self._leaving.update(names)
        processes = [self.processes[name] for name in names]
        for process in processes:
            process.terminate()
        self.wait(lambda: all(each.poll() == 0 for each in processes), f"end of {', '.join(names)}")

    def show_all(self, event: str) -> None:
        """Print an event, and wait until the table has all flights sent before."""
        tell(event)
        sent = self._sent.copy()
        self.wait(lambda: sent <= self._shown, f"{event}, and the table has all from before")

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        """Send flights until a condition holds; raise StoryError if that takes too long."""
        end = time.monotonic() + self.patience_s
        while not holds():
            if time.monotonic() > end:
                raise StoryError(
                    f"waited {self.patience_s:g} s in vain for: {what}; see {self._out}"
                )
            self._send()
            self._watch()
            self.listen()
            time.sleep(TURN_S)

    def _send(self) -> None:
        """Send some flights, each to its aircraft's partition, and record the expected rows."""
        for flight in itertools.islice(self._flights, self.a_turn):
            number = zlib.crc32(flight.key or b"") % self._partitions
            aircraft, delay = (flight.key or b"").decode(), delay_of(flight.value)
            self._totals[number, aircraft] += delay
            total = self._totals[number, aircraft]
            self.truth.append((number, self._sent[number], aircraft, delay, total))
            self._sent[number] += 1
            self._futures.append(
                self._producer.send(self.run, flight.value, key=flight.key, partition=number)
            )

    def check_offsets(self) -> None:
        """Compare the recorded offsets with those that the broker has acknowledged."""
        for row, future in zip(self.truth, self._futures, strict=True):
            place = future.result(self.patience_s)
            if (place.partition, place.offset) != row[:2]:
                raise StoryError(f"the broker has put flight {row} at {place}")

    def _watch(self) -> None:
        """Raise if a process has ended by itself, or with an error."""
        for name, process in self.processes.items():
            code = process.poll()
            if code or (code == 0 and name not in self._leaving):
                last = (self._out / f"{name}.log").read_text(errors="replace").splitlines()[-15:]
                raise StoryError("\n".join([f"{name} has ended with {code}:", *last]))

    def listen(self) -> None:
        """Process the output of the reader."""
        *lines, self._rest = (self._rest + self._lines.read()).split("\n")
        for line in map(json.loads, lines):
            if line["wrong"]:
                raise StoryError(f"version {line['version']} is no cut: {line['wrong']}")
            self.snapshots += 1
            self._workers.update(line["workers"])
            self._shown = Counter({int(key): count for key, count in line["shown"].items()})
            tell(f"snapshot {self.snapshots}: {self._shown.total():,} flights, a cut")


def played(
    given: argparse.Namespace, address: str, make_story: type[Story] = Story
) -> dict[str, int]:
    """Run the story, and compare the table with the expected rows."""
    began = time.monotonic()
    story = make_story(address, given.out, QUICK_A_TURN if given.quick else A_TURN)
    try:
        story.play(QUICK_FLIGHTS if given.quick else FLIGHTS, kill=not given.quick)
    finally:
        story.close()
    table = DeltaTable(given.out / "table").to_pyarrow_table()
    truth, found = Counter(story.truth), Counter(rows_in(table))
    return {
        "flights": truth.total(),
        "missing": (truth - found).total(),
        "too_many": (found - truth).total(),
        "partitions": len(set(table["partition"].to_pylist())),
        "workers": len(set(table["worker"].to_pylist())),
        "killed": int(not given.quick),
        "snapshots": story.snapshots,
        "seconds": round(time.monotonic() - began),
    }


def main(
    description: str | None = __doc__,
    make_story: type[Story] = Story,
    operate: Callable[[argparse.Namespace], None] = work,
) -> int:
    """Run the story, or be one of its processes."""
    given = parsed(command_line(description, quick="fewer flights, and no kill"))
    be_process = read if given.role == "reader" else operate
    return run(
        given,
        lambda address: played(given, address, make_story),
        be_process,
        wrong=("missing", "too_many"),
    )


if __name__ == "__main__":
    sys.exit(main())
