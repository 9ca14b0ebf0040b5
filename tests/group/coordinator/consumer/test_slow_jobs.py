"""Slow jobs while members join, leave, compute and move (K11, K50, K61)."""

from __future__ import annotations

from typing import TypeAlias

import hypothesis.strategies as st
from hypothesis import given

from kohort.group.coordinator.events import Unload
from kohort.group.coordinator.shard import Lifecycle
from tests.group.coordinator.consumer.assignor_dialogue import MINE, AssignorDialogue

MEMBERS = ("a", "b", "c")
Action: TypeAlias = tuple[str, str, int]
DOINGS = "enter foreign pattern beat beat leave prepare install wrong job job time grow reload"
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(DOINGS.split()),
        st.sampled_from(MEMBERS),
        st.integers(0, 3),
    ),
    max_size=40,
)


class SlowDialogue(AssignorDialogue):
    """Members act as a test says; none waits for a response."""

    def __init__(self) -> None:
        super().__init__()
        self.holds_jobs = True
        self.size = 4

    def do(self, action: Action) -> None:
        what, who, number = action
        match what:
            case "enter":
                self.joins(who, client_assignors=MINE, subscribed_topic_names=("t",))
            case "foreign":
                self.joins(who, subscribed_topic_names=("t",))
            case "pattern":
                self.joins(who, subscribed_topic_names=(), subscribed_topic_regex="t.*")
            case "beat":
                self.beats_as_it_stands(who)
            case "leave":
                self.beat_token(who, -1)
            case "job" if self.held_back:
                self.finish(self.held_back.pop(number % len(self.held_back)))
            case "time":
                self.advance(8_000)
            case "grow":
                self.size += 1
                self.topics(t=self.size)
            case "reload":
                self.held_back.clear()  # they belonged to the old shard
                self.reload()
                self.topics(t=self.size)
            case "prepare" | "install" | "wrong":
                self.computes(what, who, number)

    def joins(self, who: str, **more: object) -> None:
        self.beat_token(who, 0, held={}, rebalance_timeout_ms=30_000, **more)

    def beats_as_it_stands(self, who: str) -> None:
        """Send what a member with all responses would send; without any response, join again."""
        group = self.shard.log.consumer_groups.get("g")
        member = group.members.get(who) if group else None
        if member is not None and member.epoch:
            self.beat_token(who, member.epoch, held=self.by_name(member.assigned))
        elif member is not None:
            names, regex = member.topics, member.regex
            self.joins(who, subscribed_topic_names=names, subscribed_topic_regex=regex)

    def computes(self, what: str, who: str, number: int) -> None:
        group = self.shard.log.consumer_groups.get("g")
        if group is None or who not in group.members:
            return
        if what == "prepare":
            self.prepare(who)
            return
        given = range(self.size) if what == "install" else [number, number]
        self.install_token(who, {who: {"t": given}})

    def is_settled(self) -> bool:
        group = self.shard.log.consumer_groups.get("g")
        return group is None or group.state.value in ("Empty", "Stable")

    def go_on(self) -> None:
        """Run pending jobs, and have all present members send heartbeats; none computes."""
        for _ in range(500):  # after a slow target, a group pauses for four times as long
            self.do_jobs()
            group = self.shard.log.consumer_groups.get("g")
            for who in sorted(group.members) if group else ():
                self.beats_as_it_stands(who)
            if self.is_settled():
                return
            self.advance(5_000)
        raise AssertionError("the group does not settle")


@given(actions=ACTIONS)
def test_everybody_is_answered_and_nothing_is_owned_twice(actions: list[Action]) -> None:
    group = SlowDialogue()
    for action in actions:
        group.do(action)
        for owned in owners(group):
            assert len(owned) == 1
    group.go_on()
    group.run(Unload())
    assert group.shard.state is Lifecycle.DOWN
    assert len(group.answers) == group.tokens


def owners(group: SlowDialogue) -> list[tuple[str, ...]]:
    known = group.shard.log.consumer_groups.get("g")
    return [each for claims in known.owners.values() for each in claims.values()] if known else []
