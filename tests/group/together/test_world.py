"""A whole group: members join, leave, die and return, and the coordinator moves."""

from __future__ import annotations

from kohort.group.events import GenerationStarted, MemberLeft, Ownership
from kohort.group.member.classic.machine import ClassicMemberState
from kohort.group.member.events import Closing, Polled, RejoinAsked, Subscribed, Unsubscribed
from kohort.types import TopicPartition
from tests.group.together.world import Application, World

FLIGHTS = frozenset({"flights"})


def joined(world: World, *names: str, instance: str | None = None) -> list[Application]:
    applications = [world.start(name, instance=instance) for name in names]
    for application in applications:
        world.tell(application, Subscribed(FLIGHTS))
    world.settle()
    return applications


def partitions(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("flights", number) for number in numbers)


def test_one_member_owns_all_and_two_share() -> None:
    world = World()
    (north,) = joined(world, "north")
    assert north.member.assigned == partitions(*range(8))
    (south,) = joined(world, "south")
    world.advance(3_000)
    assert world.everybody_is_stable()
    assert {len(north.member.assigned), len(south.member.assigned)} == {4}
    assert north.member.assigned | south.member.assigned == partitions(*range(8))
    assert north.member.generation_id == south.member.generation_id == 2


def test_a_killed_member_loses_its_partitions_after_its_session() -> None:
    world = World()
    north, _south = joined(world, "north", "south")
    world.advance(4_000)
    world.kill("south")
    world.advance(9_000)
    assert len(north.member.assigned) == 4
    world.advance(5_000)
    assert north.member.assigned == partitions(*range(8))
    assert any(isinstance(event, MemberLeft) for event in world.observed)


def test_l7_closing_gives_up_then_leaves_and_others_take_over() -> None:
    world = World()
    north, south = joined(world, "north", "south")
    world.advance(4_000)
    owned = south.member.assigned
    world.tell(south, Closing())
    world.settle()
    assert south.member.state is ClassicMemberState.CLOSED
    assert south.words[-1] == (Ownership.REVOKED, owned)
    world.advance(3_000)
    assert north.member.assigned == partitions(*range(8))


def test_c33_l7_a_static_member_does_not_leave_and_returns_without_a_rebalance() -> None:
    world = World()
    joined(world, "north")
    (south,) = joined(world, "south", instance="s")
    world.advance(4_000)
    owned, generation = south.member.assigned, south.member.generation_id
    world.tell(south, Closing())
    world.settle()
    assert south.member.state is ClassicMemberState.CLOSED
    world.kill("south")
    world.advance(2_000)
    (again,) = joined(world, "south", instance="s")
    assert again.member.assigned == owned
    assert again.member.generation_id == generation


def test_t20_a_coordinator_that_moves_causes_no_rebalance() -> None:
    world = World()
    north, south = joined(world, "north", "south")
    world.advance(4_000)
    before = (north.member.generation_id, north.member.assigned, south.member.assigned)
    for application in (north, south):
        world.drop_connection(application)
    world.reload()
    world.advance(20_000)
    assert (north.member.generation_id, north.member.assigned, south.member.assigned) == before


def test_l7_an_application_that_does_not_poll_leaves_and_loses_when_it_comes_back() -> None:
    world = World()
    north, south = joined(world, "north", "south")
    world.advance(4_000)
    owned = south.member.assigned
    for _ in range(130):
        world.tell(north, Polled())
        world.advance(500, poll=False)
    assert south.member.state is ClassicMemberState.STALE
    assert north.member.assigned == partitions(*range(8))
    world.tell(south, Polled())
    world.settle()
    assert (Ownership.LOST, owned) in south.words
    world.advance(4_000)
    assert len(south.member.assigned) == 4


def test_a_deferred_revocation_keeps_the_membership_alive() -> None:
    world = World()
    (north,) = joined(world, "north")
    north.deferring = True
    (south,) = joined(world, "south")
    world.advance(40_000)  # four session timeouts, less than the rebalance timeout
    assert north.member.state is ClassicMemberState.REVOKING
    assert north.member.generation_id == 1
    north.deferring = False
    world.advance(1_000)
    assert world.everybody_is_stable()
    assert north.member.generation_id == south.member.generation_id == 2


def test_l15_a_rebalance_that_was_asked_for() -> None:
    world = World()
    north, south = joined(world, "north", "south")
    world.advance(4_000)
    generation = north.member.generation_id
    world.tell(north, RejoinAsked("topics changed"))
    world.advance(4_000)
    assert north.member.generation_id == south.member.generation_id > generation


def test_unsubscribing_leaves_and_subscribing_joins_again() -> None:
    world = World()
    north, south = joined(world, "north", "south")
    world.advance(4_000)
    world.tell(north, Unsubscribed())
    world.settle()
    assert north.member.state is ClassicMemberState.UNSUBSCRIBED
    world.advance(4_000)
    assert len(south.member.assigned) == 8
    world.tell(north, Subscribed(FLIGHTS))
    world.advance(4_000)
    assert len(south.member.assigned) == len(north.member.assigned) == 4


def test_s5_generations_never_go_back() -> None:
    world = World()
    joined(world, "north", "south", "west")
    world.advance(5_000)
    world.kill("west")
    world.advance(20_000)
    started = [e.generation for e in world.observed if isinstance(e, GenerationStarted)]
    assert started == sorted(set(started))
