"""Both sides of KIP-848 together: cases that the storm rarely reaches."""

from __future__ import annotations

from kohort.group.member.consumer.machine import ConsumerMemberState
from kohort.group.member.events import Closing, Polled, Subscribed
from kohort.types import TopicPartition
from tests.group.together.consumer_world import ConsumerWorld, Player


def joined(world: ConsumerWorld, name: str) -> Player:
    player = world.start(name)
    player.stage.tell(Subscribed(frozenset({"flights"})))
    player.stage.tell(Polled())
    return player


def shares(world: ConsumerWorld) -> list[int]:
    return sorted(len(player.stage.believes) for player in world.players.values())


def test_k20_k21_members_come_and_go_and_everybody_has_a_share() -> None:
    world = ConsumerWorld(flights=6)
    for name, expected in (("east", [6]), ("north", [3, 3]), ("south", [2, 2, 2])):
        joined(world, name)
        world.advance(15_000)
        assert shares(world) == expected
    world.players["north"].stage.tell(Closing())
    world.advance(15_000)
    assert shares(world) == [0, 3, 3]
    assert world.players["north"].stage.member.is_closed


def test_l31_what_an_application_is_being_told_of_goes_to_nobody_else() -> None:
    """A full heartbeat claims it, though the application has not taken it over yet.

    Otherwise the coordinator would count it as revoked, and assign it to a third member.
    """
    world = ConsumerWorld(flights=4)
    east, north = joined(world, "east"), joined(world, "north")
    world.advance(15_000)
    assert shares(world) == [2, 2]
    east.is_slow = True
    north.stage.tell(Closing())
    world.advance(10_000)
    assert east.stage.callbacks  # for two more partitions
    south = joined(world, "south")
    world.advance(6_000)
    while not east.stage.requests:
        world.wait(1_000)
    east.drop_connection()
    world.advance(20_000)
    assert south.stage.believes == set()
    east.is_slow = False
    world.advance(20_000)
    assert shares(world) == [0, 2, 2]
    assert [names for names in world.owners().values() if len(names) > 1] == []


def test_l35_a_member_that_was_silent_for_too_long_loses_and_comes_back() -> None:
    world = ConsumerWorld(flights=4)
    east, north = joined(world, "east"), joined(world, "north")
    world.advance(15_000)
    had = set(east.stage.believes)
    del world.players["east"]  # its network is down
    for _ in range(5):
        world.advance(10_000)
    assert len(north.stage.believes) == 4
    world.players["east"] = east
    east.stage.now = world.now
    world.advance(15_000)
    assert shares(world) == [2, 2]
    lost = {partition for _, partitions in east.stage.words[1:] for partition in partitions}
    assert had <= lost
    assert east.stage.state() is ConsumerMemberState.STABLE


def test_l32_a_topic_that_grows_is_shared_anew() -> None:
    world = ConsumerWorld(flights=2)
    joined(world, "east")
    joined(world, "north")
    world.advance(15_000)
    world.topics(flights=4)
    world.advance(15_000)
    assert shares(world) == [2, 2]
    assert set(world.owners()) == {TopicPartition("flights", number) for number in range(4)}
