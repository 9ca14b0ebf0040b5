"""In any history of a group, no partition has two members, and its log restores it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer.state.group import ConsumerGroup
from kohort.group.coordinator.state import LogState
from kohort.wire.group_log import decode_record
from kohort.wire.messages.consumer_group import TopicPartitions
from tests.group.coordinator.consumer.consumer_dialogue import ConsumerDialogue, Held
from tests.group.coordinator.dialogue import GROUP

NAMES = ["a", "b", "c"]
names = st.sampled_from(NAMES)
topics = st.sets(st.sampled_from(["t", "u", "v"])).map(lambda chosen: tuple(sorted(chosen)))
actions = st.one_of(
    st.tuples(st.just("enter"), names, topics),
    st.tuples(st.just("enter"), names, st.sampled_from(["t.*", "u|v"])),
    st.tuples(st.just("beat"), names, st.booleans()),
    st.tuples(st.just("beat"), names, st.booleans()),
    st.tuples(st.just("resubscribe"), names, topics),
    st.tuples(st.just("leave"), names, st.booleans()),
    st.tuples(st.just("advance"), st.integers(1, 4_000), st.none()),
    st.tuples(st.just("topics"), st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.just("hold"), st.booleans(), st.none()),
    st.tuples(st.just("reload"), st.none(), st.none()),
)


class Clients:
    """Three clients that follow the protocol, though responses to them may be lost."""

    def __init__(self) -> None:
        self.group = ConsumerDialogue(
            group_consumer_session_timeout_ms=5_000, group_consumer_assignment_interval_ms=1_000
        )
        self.group.topics(t=4, u=2)
        self.epochs = dict.fromkeys(NAMES, 0)
        self.held: dict[str, Held] = {name: {} for name in NAMES}

    def beat(self, name: str, epoch: int, *, lost: bool = False, **more: Any) -> None:
        if epoch == 0:
            self.held[name] = {}
        held = {topic: numbers for topic, numbers in self.held[name].items() if self.exists(topic)}
        known = self.group.shard.log.consumer_groups.get(GROUP)
        token = self.group.beat_token(name, epoch, held=held, instance_id=f"i-{name}", **more)
        answer = self.group.answers.get(token)
        if answer is None or lost:
            return
        if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.epochs[name], self.held[name] = 0, {}
        elif answer.error_code == ErrorCode.NONE:
            self.epochs[name] = max(answer.member_epoch, 0)
            if answer.assignment is not None:
                self.take(name, answer.assignment.topic_partitions)
        else:
            assert known is None or answer.error_code in (
                ErrorCode.UNRELEASED_INSTANCE_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
            )

    def exists(self, topic: str) -> bool:
        return topic in self.group.image.by_name

    def take(self, name: str, parts: Iterable[TopicPartitions]) -> None:
        known = self.group.image.names
        self.held[name] = {
            known[each.topic_id]: set(each.partitions) for each in parts if each.topic_id in known
        }

    def act(self, kind: str, one: object, two: object) -> None:
        group, name = self.group, str(one)
        match kind:
            case "enter":
                wanted: dict[str, Any] = {"subscribed_topic_names": two}
                if isinstance(two, str):
                    wanted = {"subscribed_topic_names": (), "subscribed_topic_regex": two}
                self.beat(name, 0, rebalance_timeout_ms=3_000, **wanted)
            case "beat" if self.epochs[name]:
                self.beat(name, self.epochs[name], lost=bool(two))
            case "resubscribe" if self.epochs[name]:
                self.beat(name, self.epochs[name], subscribed_topic_names=two)
            case "leave" if self.epochs[name]:
                self.beat(name, -2 if two else -1)
                self.epochs[name] = 0
            case "advance":
                group.advance(int(str(one)))
            case "topics":
                counts = {"t": 1 + int(str(one)), "u": int(str(two)), "v": int(str(one))}
                group.topics(**{topic: count for topic, count in counts.items() if count})
            case "hold":
                group.holds_jobs = bool(one)
                if not group.holds_jobs:
                    group.do_jobs()
            case "reload":
                group.held_back.clear()
                group.reload()


def check(group: ConsumerGroup) -> None:
    """Check that indexes match the members, and that no partition has two members (K23)."""
    fresh = ConsumerGroup(group_id=group.group_id)
    for member in group.members.values():
        fresh = fresh.with_member(member)
    for index in ("owners", "subscribers", "regex_subscribers", "votes", "stable_in", "static"):
        assert getattr(group, index) == getattr(fresh, index), index
    for partitions in group.owners.values():
        assert all(len(owners) == 1 for owners in partitions.values())
    given = [
        (topic_id, number)
        for member_id in group.target
        for topic_id, numbers in group.target_of(member_id).items()
        for number in numbers
    ]
    assert len(given) == len(set(given))
    assert set(group.target) <= set(group.members)


@settings(max_examples=150)
@given(st.lists(actions, max_size=40))
def test_k23_k30_no_partition_has_two_members_and_a_load_changes_nothing(
    steps: list[tuple[str, object, object]],
) -> None:
    clients = Clients()
    for step in steps:
        clients.act(*step)
        for group in clients.group.shard.log.consumer_groups.values():
            check(group)
    clients.group.reload()


@settings(max_examples=100)
@given(st.lists(actions, min_size=5, max_size=40), st.integers(0, 200), st.integers(0, 200))
def test_b1_b2_b3_a_compacted_log_gives_the_same_groups(
    steps: list[tuple[str, object, object]], first: int, length: int
) -> None:
    """Of one part of the log, only the last record of each key is left, without some tombstones.

    A tombstone is removed only if no older record of its key is left, as by Kafka's cleaner.
    """
    clients = Clients()
    for step in steps:
        clients.act(*step)
    log = clients.group.log
    start, end = min(first, len(log)), min(first + length, len(log))
    last = {key: at for at, (key, _) in enumerate(log)}
    older = {key for key, _ in log[:start]}
    kept = [
        (key, value)
        for at, (key, value) in enumerate(log)
        if not start <= at < end or (last[key] == at and (value is not None or key in older))
    ]
    assert folded(kept).consumer_groups == folded(log).consumer_groups


def folded(log: list[tuple[bytes, bytes | None]]) -> LogState:
    state = LogState()
    for key, value in log:
        record = decode_record(key, value)
        assert record is not None
        state = state.apply(record)
    return state


def test_b1_a_log_that_is_read_twice_is_the_log() -> None:
    """A replaced static member appears and leaves a second time: its successor stays."""
    group = ConsumerDialogue()
    group.topics(t=4)
    group.enter("old", "t", instance_id="i")
    group.heartbeat("old", -2, instance_id="i")
    group.enter("new", "t", instance_id="i")
    twice = LogState()
    for key, value in [*group.log, *group.log]:
        record = decode_record(key, value)
        assert record is not None
        twice = twice.apply(record)
    assert twice == group.shard.log


def test_b1_a_compacted_log_that_is_read_twice_is_the_log() -> None:
    """A tombstone removes a member's assignment; it does not remove the member."""
    group = ConsumerDialogue()
    group.topics(t=4)
    group.enter("a", "t")
    group.heartbeat("a", -1)
    group.holds_jobs = True
    wants: dict[str, Any] = {"subscribed_topic_names": ("t",), "rebalance_timeout_ms": 30_000}
    group.beat_token("a", 0, held={}, **wants)
    last = {key: at for at, (key, _) in enumerate(group.log)}
    compacted = [entry for at, entry in enumerate(group.log) if last[entry[0]] == at]
    assert folded([*compacted, *compacted]) == folded(group.log)
