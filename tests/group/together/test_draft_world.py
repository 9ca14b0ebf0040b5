"""Consumers of the draft protocol together in a group (docs/internals/draft.md)."""

from __future__ import annotations

from kohort.group.events import Cause, GenerationStarted, RebalanceStarted
from kohort.group.member.events import Subscribed
from kohort.types import TopicPartition
from tests.group.together.draft_world import FLIGHTS, DraftWorld, partitions


def test_two_share_and_a_killed_one_loses_after_its_session() -> None:
    world = DraftWorld()
    north, south = world.joined("north", "south")
    assert {len(north.member.assigned), len(south.member.assigned)} == {4}
    world.kill("south")
    world.advance(9_000)
    assert len(north.member.assigned) == 4
    world.advance(6_000)
    assert north.member.assigned == partitions(*range(8))


def test_d2_d15_a_coordinator_that_moves_causes_no_rebalance() -> None:
    world = DraftWorld()
    north, south = world.joined("north", "south")
    before = (north.member.generation_id, north.member.assigned, south.member.assigned)
    for application in (north, south):
        world.drop_connection(application)
    world.reload()
    world.advance(20_000)
    assert (north.member.generation_id, north.member.assigned, south.member.assigned) == before


def test_d15_a_coordinator_that_dies_in_each_phase_delays_the_group_only() -> None:
    for phase in ("PrepareForRebalance", "Rebalancing"):
        world = DraftWorld()
        (north,) = world.joined("north")
        south = world.start("south")
        world.tell(south, Subscribed(FLIGHTS))
        while world.group.state.value != phase:
            if not any(world.work(each) for each in (south, north)):
                world.now += 100
                world.expire()
        world.reload()
        world.advance(6_000)
        assert world.everybody_is_part()
        assert len(north.member.assigned) == len(south.member.assigned) == 4


def test_d14_new_partitions_are_given_out() -> None:
    world = DraftWorld()
    north, south = world.joined("north", "south")
    world.tell_topics(flights=10)
    world.advance(4_000)
    assert len(north.member.assigned) == len(south.member.assigned) == 5
    started = [event for event in world.observed if isinstance(event, RebalanceStarted)]
    assert started[-1].cause is Cause.TOPICS_CHANGED


def test_a_subscription_that_changes_while_the_coordinator_is_away() -> None:
    world = DraftWorld()
    world.tell_topics(delays=1)
    (north,) = world.joined("north")
    north.reachable = False
    world.drop_connection(north)
    world.tell(north, Subscribed(frozenset({"delays"})))
    assert north.member.fetchable == partitions(*range(8))
    north.reachable = True
    world.advance(1_000)
    assert north.member.assigned == {TopicPartition("delays", 0)}


def test_generations_never_go_back() -> None:
    world = DraftWorld()
    world.joined("north", "south", "west")
    world.kill("west")
    world.advance(20_000)
    started = [e.generation for e in world.observed if isinstance(e, GenerationStarted)]
    assert started == sorted(set(started))
