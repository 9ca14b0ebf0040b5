"""A cooperative member whose assignor marks some of its partitions as lent."""

from __future__ import annotations

from kohort.group.member.events import RejoinAsked
from kohort.types import TopicPartition
from tests.group.member.classic.test_cooperative_member import (
    ASSIGNED,
    REVOKED,
    flights,
    join,
    said,
)
from tests.group.together.cooperative import Keep
from tests.group.together.world import World


class Lending(Keep):
    """Makes its member revoke some partitions before it rejoins."""

    given_up: frozenset[TopicPartition] = frozenset()

    def lent(self) -> frozenset[TopicPartition]:
        return self.given_up


def test_l3_what_is_lent_is_revoked_before_the_join_and_may_come_back() -> None:
    world = World()
    world.topics = {"flights": 4}
    lending = Lending()
    lending.given_up = flights(0, 3)
    north = join(world, "north", lending)
    world.settle()
    lending.given_up = frozenset()  # read after an assignment, not when the member joins
    north.words.clear()
    world.tell(north, RejoinAsked("to see what is given up"))
    assert (north.callbacks[0].change, north.callbacks[0].partitions) == (REVOKED, flights(0, 3))
    world.run_callback(north)
    assert said(north).owned == flights(1, 2)
    world.settle()
    assert north.words == [(REVOKED, flights(0, 3)), (ASSIGNED, flights(0, 3))]
    world.tell(north, RejoinAsked("nothing is lent now"))
    world.settle()
    assert north.words[2:] == [(ASSIGNED, frozenset())]
