"""Both sides of KIP-848, with lost connections, deaths, reloads and growing topics.

Checked after every step: no two applications whose members the coordinator knows believe to own the
same partition (S1, K21, K23), whatever a full heartbeat reported while a callback was running.
Checked at the end: every partition has exactly one owner, and all members are stable.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kohort.group.member.consumer.machine import ConsumerMemberState
from kohort.group.member.events import Closing, Polled, Subscribed, Unsubscribed
from tests.group.together.consumer_world import ConsumerWorld, Player

NAMES = ("east", "north", "south")
SUBSCRIPTIONS = st.sampled_from([frozenset({"flights"}), frozenset({"flights", "delays"})])


class Storm(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.flights = 4
        self.world = ConsumerWorld(flights=4, delays=2)
        for name in NAMES[:2]:
            self.begin(name, frozenset({"flights"}), None)
        self.world.advance(6_000)

    def begin(self, name: str, topics: frozenset[str], instance: str | None) -> None:
        player = self.world.start(name, instance)
        player.stage.tell(Subscribed(topics))
        player.stage.tell(Polled())

    def some(self, index: int) -> Player | None:
        names = sorted(self.world.players)
        return self.world.players[names[index % len(names)]] if names else None

    @rule(name=st.sampled_from(NAMES), topics=SUBSCRIPTIONS, static=st.booleans())
    def start(self, name: str, topics: frozenset[str], static: bool) -> None:
        if name not in self.world.players:
            self.begin(name, topics, name if static else None)

    @rule(indexes=st.lists(st.integers(0, 2), min_size=1, max_size=12))
    def work(self, indexes: list[int]) -> None:
        for index in indexes:
            player = self.some(index)
            if player is not None:
                self.world.work(player)
                self.nobody_shares_a_partition()

    @rule(milliseconds=st.sampled_from([100, 1_000, 5_000, 5_000, 46_000, 61_000]))
    def wait(self, milliseconds: int) -> None:
        self.world.wait(milliseconds)

    @rule(index=st.integers(0, 2))
    def poll(self, index: int) -> None:
        player = self.some(index)
        if player is not None:
            player.stage.tell(Polled())

    @rule(seconds=st.integers(1, 12))
    def go_on(self, seconds: int) -> None:
        self.world.advance(seconds * 1_000)

    @rule(index=st.integers(0, 2), is_slow=st.booleans())
    def take_time(self, index: int, is_slow: bool) -> None:
        """Make an application slow in its listener, or normal again."""
        player = self.some(index)
        if player is not None:
            player.is_slow = is_slow

    @rule(index=st.integers(0, 2))
    def drop_connection(self, index: int) -> None:
        player = self.some(index)
        if player is not None:
            player.drop_connection()

    @rule(index=st.integers(0, 2), topics=SUBSCRIPTIONS)
    def subscribe(self, index: int, topics: frozenset[str]) -> None:
        player = self.some(index)
        if player is not None and self.is_open(player):
            player.stage.tell(Subscribed(topics))

    @rule(index=st.integers(0, 2), how=st.sampled_from(["unsubscribe", "close", "kill"]))
    def leave(self, index: int, how: str) -> None:
        player = self.some(index)
        if player is None:
            return
        if how == "kill":
            self.world.players = {
                name: each for name, each in self.world.players.items() if each is not player
            }
        else:
            player.stage.tell(Unsubscribed() if how == "unsubscribe" else Closing())

    @rule(more=st.integers(1, 2))
    def grow(self, more: int) -> None:
        self.flights = min(self.flights + more, 8)
        self.world.topics(flights=self.flights, delays=2)

    @rule()
    def reload(self) -> None:
        self.world.reload()
        for player in self.world.players.values():
            player.drop_connection()

    @staticmethod
    def is_open(player: Player) -> bool:
        member = player.stage.member
        return member.session.closing is None and not member.is_failed

    @invariant()
    def nobody_shares_a_partition(self) -> None:
        assert [names for names in self.world.owners().values() if len(names) > 1] == []

    def teardown(self) -> None:
        """Check that in the end all read flights, except members that closed or failed."""
        self.world.players = {
            name: player for name, player in self.world.players.items() if self.is_open(player)
        }
        for player in self.world.players.values():
            player.is_slow = False
            player.stage.tell(Subscribed(frozenset({"flights"})))
        self.world.advance(130_000)
        self.world.players = {
            name: player for name, player in self.world.players.items() if self.is_open(player)
        }
        if self.world.players:
            owned = {partition.partition for partition in self.world.owners()}
            assert owned == set(range(self.flights))
            states = {player.stage.state() for player in self.world.players.values()}
            assert states == {ConsumerMemberState.STABLE}


TestStorm = Storm.TestCase
TestStorm.settings = settings(max_examples=60, stateful_step_count=40)
