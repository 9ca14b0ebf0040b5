"""Whole cooperative groups: mixed with eager members, upgraded, with zombies, growing topics."""

from __future__ import annotations

import pytest

from kohort.group.assignors import Assignor, RangeAssignor
from kohort.group.events import GenerationStarted, Ownership
from kohort.group.member.classic.machine import ClassicMemberState
from kohort.group.member.config import MemberConfig
from kohort.group.member.events import Closing, RejoinAsked, Subscribed
from kohort.types import TopicPartition
from kohort.values import replace
from tests.group.together.cooperative import AtOnce, Keep
from tests.group.together.world import Application, World

FLIGHTS = frozenset({"flights"})
ASSIGNED, REVOKED, LOST = Ownership.ASSIGNED, Ownership.REVOKED, Ownership.LOST


def join(world: World, name: str, *assignors: Assignor, instance: str | None = None) -> Application:
    application = world.start(name, *(assignors or (Keep(),)), instance=instance)
    world.tell(application, Subscribed(FLIGHTS))
    return application


def group(world: World, *names: str) -> list[Application]:
    """Return stable cooperative members; their earlier callbacks are cleared."""
    members = [join(world, name) for name in names]
    world.advance(12_000)
    assert is_shared(world)
    for each in members:
        each.words.clear()
    return members


def is_shared(world: World) -> bool:
    owners = world.owners()
    one_each = all(len(names) == 1 for names in owners.values())
    shares = [len(each.member.assigned) for each in world.applications.values()]
    even = max(shares) - min(shares) <= 1
    return world.everybody_is_stable() and one_each and even and len(owners) == 8


def test_a_newcomer_costs_its_share_and_nobody_more() -> None:
    world = World()
    members = group(world, "east", "north", "south")
    before = {each.name: each.member.assigned for each in members}
    join(world, "west")
    world.advance(12_000)
    assert is_shared(world)
    for each in members:
        assert each.member.assigned <= before[each.name]
        assert all(not words for change, words in each.words if change is ASSIGNED)


class HearsSoon(World):
    """Its members send the first heartbeat of a generation after half a second."""

    @staticmethod
    def settings(instance: str | None = None) -> MemberConfig:
        return replace(World.settings(instance), first_heartbeat_part=6)


@pytest.mark.parametrize(("world", "most_ms"), [(World(), 3_000), (HearsSoon(), 500)])
def test_l9_who_moves_partitions_waits_for_the_next_heartbeat_of_those_who_move_none(
    world: World, most_ms: int
) -> None:
    """There are two rebalances, and only members that revoke partitions start the second."""
    group(world, "east", "north", "south")
    join(world, "west")
    pauses: dict[TopicPartition, int] = {}
    for _ in range(40):
        world.advance(250)
        for number in range(8):
            partition = TopicPartition("flights", number)
            if partition not in world.owners():
                pauses[partition] = pauses.get(partition, 0) + 250
    assert is_shared(world)
    assert max(pauses.values()) == most_ms


def test_who_leaves_leaves_its_partitions_and_the_others_keep_theirs() -> None:
    world = World()
    east, north, south = group(world, "east", "north", "south")
    left = north.member.assigned
    world.tell(north, Closing())
    world.settle()
    world.kill("north")
    world.advance(12_000)
    assert is_shared(world)
    changes = [words for each in (east, south) for words in each.words]
    assert {change for change, _ in changes} == {ASSIGNED}
    assert frozenset().union(*(partitions for _, partitions in changes)) == left


def test_kip_429_an_eager_newcomer_is_refused_and_the_group_lives() -> None:
    """L10: this is a fatal error only for the new member."""
    world = World()
    members = group(world, "north", "south")
    generation = members[0].member.generation_id
    stranger = join(world, "east", RangeAssignor())
    world.settle()
    assert stranger.member.state is ClassicMemberState.FATAL
    assert "INCONSISTENT_GROUP_PROTOCOL" in str(stranger.raised)
    world.kill("east")
    world.advance(12_000)
    assert is_shared(world)
    assert members[0].member.generation_id == generation
    assert not members[0].words


@pytest.mark.parametrize("polite", [True, False])
def test_m6_two_rolling_bounces_lead_from_eager_to_cooperative(polite: bool) -> None:
    """KIP-429: first the new assignor beside the old one, then without it."""
    world = World()
    names = ("east", "north", "south")
    for name in names:
        join(world, name, RangeAssignor())
    world.advance(12_000)
    assert is_shared(world)
    used = []
    for new in ((Keep, RangeAssignor), (Keep,)):
        for name in names:
            if polite:
                world.tell(world.applications[name], Closing())
                world.settle()
            world.kill(name)
            world.advance(3_000)
            join(world, name, *(make() for make in new))
            world.advance(15_000)
            assert is_shared(world)
        used.append({each.member.session.assignor for each in world.applications.values()})
    # after the first bounce all support the new one, but still revoke everything
    assert used == [{"keep"}, {"keep"}]
    assert all(each.member.protocol.name == "COOPERATIVE" for each in world.applications.values())


def test_m6_in_the_middle_of_the_second_bounce_both_kinds_live_together() -> None:
    """The assignor handles both: members that revoked everything own nothing."""
    world = World()
    for name in ("east", "north"):
        join(world, name, RangeAssignor(), Keep())
    world.advance(12_000)
    world.kill("north")
    world.advance(15_000)
    north = join(world, "north", Keep())
    world.advance(12_000)
    assert is_shared(world)
    east = world.applications["east"]
    kept = north.member.assigned
    for each in (east, north):
        each.words.clear()
    world.tell(north, RejoinAsked("look"))
    world.advance(12_000)
    assert is_shared(world)
    assert [change for change, _ in east.words][:2] == [REVOKED, ASSIGNED]
    assert north.words == [(ASSIGNED, frozenset())]
    assert north.member.assigned == kept


def test_l8_an_assignor_that_moves_at_once_is_reported_and_nobody_reads_twice() -> None:
    world = World()
    north = join(world, "north", AtOnce())
    world.settle()
    assert len(north.member.assigned) == 8
    join(world, "south", AtOnce())
    for _ in range(40):
        for each in list(world.applications.values()):
            world.work(each)
        world.now += 250
        world.expire()
    leaders = [each for each in world.applications.values() if each.raised]
    assert leaders
    assert "which the cooperative protocol forbids" in str(leaders[0].raised[0])
    assert {len(names) for names in world.owners().values()} == {1}


def test_a_topic_that_grows_adds_and_revokes_nothing() -> None:
    world = World()
    east, north = group(world, "east", "north")
    world.topics = {"flights": 12}
    leader = next(each for each in (east, north) if each.member.group_topics)
    world.tell(leader, RejoinAsked("the partitions of a subscribed topic changed"))
    world.advance(12_000)
    changes = [change for each in (east, north) for change, _ in each.words]
    assert set(changes) == {ASSIGNED}
    assert sorted(len(each.member.assigned) for each in (east, north)) == [6, 6]


def test_a_topic_that_is_deleted_is_revoked_from_its_owners() -> None:
    """KIP-429's unknown-but-owned: a topic missing after the leader's refresh is gone."""
    world = World()
    east, north = group(world, "east", "north")
    world.topics = {"flights": 6}
    world.tell(east, RejoinAsked("the partitions of a subscribed topic changed"))
    world.advance(12_000)
    gone = {TopicPartition("flights", 6), TopicPartition("flights", 7)}
    given_up = [p for each in (east, north) for c, ps in each.words if c is REVOKED for p in ps]
    assert gone <= set(given_up)
    assert len(world.owners()) == 6


def test_u3_a_cooperative_group_comes_to_rest() -> None:
    """Stable groups stay in their generation, whatever is committed in the meantime."""
    world = World()
    members = group(world, "east", "north", "south", "west")
    generation = members[0].member.generation_id
    for _ in range(20):
        for each in members:
            world.commit(each)
        world.advance(1_000)
    started = [fact for fact in world.observed if isinstance(fact, GenerationStarted)]
    assert started[-1].generation == generation
    assert not any(each.words for each in members)


def test_c31_l8_a_static_leader_that_returns_watches_topics_and_keeps_the_assignment() -> None:
    """KIP-814: it skips the assignment, but still watches for changes."""
    world = World()
    members = [join(world, name, instance=name) for name in ("east", "north")]
    world.advance(12_000)
    assert is_shared(world)
    leader = next(each for each in members if each.member.group_topics)
    generation, owned = leader.member.generation_id, leader.member.assigned
    world.kill(leader.name)
    again = join(world, leader.name, instance=leader.name)
    world.advance(2_000)
    assert again.member.assigned == owned
    assert again.member.generation_id == generation
    assert again.member.group_topics == FLIGHTS
