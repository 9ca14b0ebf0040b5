"""The trips of docs/internals/architecture.md name every file that a request passes: a few.

A file is passed when it is on the call stack between the bytes on a socket and the decision. Stacks
end where the event loop calls; the trip continues where the loop, or the application, calls next.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import Consumer, Producer
from kohort.group.subscription import Subscription, encode_subscription
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.broker.peer import Peer

ROOT = Path(__file__).parents[2]
SOURCE = f"{ROOT / 'src' / 'kohort'}/"
PAGE = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
STEP = re.compile(r"^\| \d+ \| `([\w.]+)` \| `([\w/.]+\.py)` \|", re.MULTILINE)
# The threads on which the loops of a client and of a broker run.
THREADS = {"client/blocking/loop_thread.py", "broker/background.py"}
MOST_FILES = 12
PARTITIONS = 4


class Passed:
    """The files and functions on the stacks of some functions, while recording."""

    def __init__(self, functions: Sequence[tuple[str, str]]) -> None:
        self.reached: set[tuple[str, str]] = set()
        self.passed: set[tuple[str, str]] = set()
        self._names = {name for _, name in functions}
        self._functions = set(functions)
        self._is_recording = False

    @contextmanager
    def possible(self) -> Iterator[None]:
        """Let threads that start within be recorded."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            threading.setprofile(None)
            sys.setprofile(None)

    @contextmanager
    def recording(self) -> Iterator[None]:
        self._is_recording = True
        try:
            yield
        finally:
            self._is_recording = False

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if self._is_recording and event == "call" and frame.f_code.co_qualname in self._names:
            function = (frame.f_code.co_filename.removeprefix(SOURCE), frame.f_code.co_qualname)
            if function in self._functions:
                self.reached.add(function)
                self.passed |= set(_on_the_stack(frame))

    def check(self, title: str) -> None:
        """Check that the page has these files, each with a function that was on a stack."""
        steps = steps_of_trip(title)
        assert sorted({file for file, _ in self.passed}) == sorted(file for _, file in steps)
        outer = {(name.split(".<locals>")[0], file) for file, name in self.passed}
        assert [step for step in steps if step not in outer] == []


def _on_the_stack(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    while frame is not None:
        file = frame.f_code.co_filename.removeprefix(SOURCE)
        if file != frame.f_code.co_filename and file not in THREADS:
            yield file, frame.f_code.co_qualname
        frame = frame.f_back


def steps_of_trip(title: str) -> list[tuple[str, str]]:
    """The functions and files in the page's table of a trip."""
    trip = PAGE.split(f"### {title}\n")[1].split("\n### ")[0]
    return STEP.findall(trip)


@pytest.mark.parametrize(
    "title", ["One heartbeat", "One fetched record", "One cooperative revocation"]
)
def test_a_trip_passes_few_files(title: str) -> None:
    files = [file for _, file in steps_of_trip(title)]
    assert len(files) == len(set(files))
    assert 0 < len(files) <= MOST_FILES


def test_a_heartbeat_passes_the_files_of_the_page() -> None:
    decision = ("group/coordinator/classic/sync.py", "accept")
    passed = Passed([decision])
    with passed.possible(), EmbeddedBroker() as broker, Peer(broker.bootstrap_servers) as peer:
        heartbeat = _stable_member(peer)
        with passed.recording():
            assert peer.ask(heartbeat, 4).error_code == 0
    assert passed.reached == {decision}
    passed.check("One heartbeat")


def _stable_member(peer: Peer) -> HeartbeatRequest:
    """Join as the only member of a group and return its heartbeat."""
    protocol = JoinGroupRequestProtocol(
        name="range", metadata=encode_subscription(Subscription(topics=frozenset({"topic"})))
    )
    join = JoinGroupRequest(
        group_id="group",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=(protocol,),
    )
    joined = peer.ask(join, 3)
    mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
    sync = SyncGroupRequest(
        group_id="group",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=(mine,),
    )
    assert peer.ask(sync, 3).error_code == 0
    return HeartbeatRequest(
        group_id="group", generation_id=joined.generation_id, member_id=joined.member_id
    )


def test_a_record_passes_the_files_of_the_page() -> None:
    stations = [
        ("broker/log/partition_log.py", "PartitionLog.read"),
        ("client/consumer/fetcher.py", "Fetcher._take_partition"),
        ("client/consumer/records.py", "Chunk.take"),
    ]
    passed = Passed(stations)
    with passed.possible(), EmbeddedBroker() as broker:
        broker.create_topic("topic", PARTITIONS)
        _produce(broker)
        with _consumer(broker) as consumer, passed.recording():
            assert _read(consumer, PARTITIONS)
    assert passed.reached == set(stations)
    passed.check("One fetched record")


def test_a_revocation_passes_the_files_of_the_page() -> None:
    stations = [
        ("client/net/connection.py", "Connection.received"),
        ("group/member/classic/join.py", "take_assignment"),
        ("group/member/classic/calls.py", "moved"),
    ]
    passed = Passed(stations)
    with (
        passed.possible(),
        EmbeddedBroker(group_initial_rebalance_delay_ms=0) as broker,
    ):
        broker.create_topic("topic", PARTITIONS)
        with _consumer(broker) as first:
            while len(first.assignment()) < PARTITIONS:
                first.poll(50)
            with _consumer(broker) as second, passed.recording():
                while len(first.assignment()) == PARTITIONS:
                    first.poll(50)
                    second.poll(50)
    assert passed.reached == set(stations)
    passed.check("One cooperative revocation")


def _produce(broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for partition in range(PARTITIONS):
            producer.send("topic", b"value", partition=partition)


def _consumer(broker: EmbeddedBroker) -> Consumer:
    consumer = Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="group",
        group_protocol="classic",
        partition_assignment_strategy=["cooperative-sticky"],
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
    )
    consumer.subscribe(["topic"])
    return consumer


def _read(consumer: Consumer, count: int) -> bool:
    """Read until there are that many records."""
    while count > 0:
        count -= len(consumer.poll(200))
    return True
