"""What watchers make of a group, in each protocol: real groups on an embedded broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import Consumer
from kohort.group.events import GroupEvent
from kohort.observe.watch import EventWatch, GroupSnapshot, SnapshotWatch
from kohort.types import TopicPartition

PARTITIONS = tuple(TopicPartition("t", number) for number in range(4))
SETTINGS: dict[str, dict[str, str]] = {
    "eager": {"partition.assignment.strategy": "range", "heartbeat.interval.ms": "50"},
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "heartbeat.interval.ms": "50",
    },
    "consumer": {"group.protocol": "consumer"},
}


class Watched:
    """A watch, and a way to wait for what it sees."""

    def __init__(self) -> None:
        self.watch = EventWatch("g", PARTITIONS, 0)
        self._changed = threading.Condition()

    def on_event(self, event: GroupEvent) -> None:
        with self._changed:
            self.watch.on_event(event)
            self._changed.notify_all()

    def wait_for_rebalances(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.watch.rebalances) >= count, 30)


@contextmanager
def polling(bootstrap: str, name: str, protocol: str) -> Iterator[None]:
    """A member that polls in a thread of its own."""
    done = threading.Event()
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "client.id": name}

    def poll() -> None:
        with Consumer.from_config({**settings, **SETTINGS[protocol]}, "t") as consumer:
            while not done.is_set():
                consumer.poll(20)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("protocol", SETTINGS)
def test_only_the_eager_protocol_stops_what_stays(protocol: str) -> None:
    watched = Watched()
    broker = EmbeddedBroker(group_consumer_heartbeat_interval_ms=50)
    broker.subscribe(watched.on_event)
    with broker, ExitStack() as members:
        broker.create_topic("t", len(PARTITIONS))
        members.enter_context(polling(broker.bootstrap_servers, "north", protocol))
        watched.wait_for_rebalances(1)
        assert watched.watch.owned_by("north") == 4
        with polling(broker.bootstrap_servers, "south", protocol):
            watched.wait_for_rebalances(2)
            assert [watched.watch.owned_by(name) for name in ("north", "south")] == [2, 2]
        watched.wait_for_rebalances(3)
    alone, shared, left = watched.watch.rebalances[:3]
    assert (alone.member, shared.member, left.member) == ("north", "south", "south")
    assert shared.cause == "a member joined"
    assert {(move.source, move.target) for move in shared.moves} == {("north", "south")}
    assert {(move.source, move.target) for move in left.moves} == {("south", "north")}
    assert alone.longest_stop_ms is None
    for rebalance in (shared, left):
        assert rebalance.longest_stop_ms is not None
        if protocol != "eager":
            assert rebalance.longest_stop_ms == 0
    timeline = watched.watch.timeline
    stops = {
        span.partition
        for partition in PARTITIONS
        for span in timeline.spans(partition, shared.end_ms)
        if span.owner is None and span.start_ms > alone.end_ms
    }
    moved = {move.partition for move in shared.moves}
    assert stops <= (set(PARTITIONS) if protocol == "eager" else moved)


def test_a_description_that_does_not_tell_owners_changes_none() -> None:
    """A classic group is described without its assignment while it rebalances."""
    watch = SnapshotWatch(PARTITIONS, 0)
    for at in (10, 15):
        watch.on_snapshot(GroupSnapshot(True, {"north": PARTITIONS}), at)
    watch.on_snapshot(GroupSnapshot(False, None), 20)
    assert watch.owned_by("north") == 4
    watch.on_snapshot(GroupSnapshot(True, {"north": PARTITIONS[:2], "south": ()}), 30)
    assert len(watch.rebalances) == 1
    shared = {"north": PARTITIONS[:2], "south": PARTITIONS[2:]}
    watch.on_snapshot(GroupSnapshot(True, shared), 40)
    rebalance = watch.rebalances[-1]
    assert [each.generation for each in watch.rebalances] == [1, 2]
    assert (rebalance.start_ms, rebalance.end_ms) == (20, 40)
    assert rebalance.longest_gap_ms == 10
    assert rebalance.longest_stop_ms == 0
