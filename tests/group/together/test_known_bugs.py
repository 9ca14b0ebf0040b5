"""Known bugs of other clients' cooperative members (U3), checked for ours."""

from __future__ import annotations

from kohort.group.assignors import ClusterView, CooperativeStickyAssignor, Subscription
from kohort.group.events import Ownership
from kohort.group.member.events import Subscribed
from kohort.types import TopicPartition
from tests.group.together.world import GROUP, Application, World

FLIGHTS = frozenset({"flights"})


def test_the_assignor_comes_to_an_end_with_more_members_than_partitions() -> None:
    """U3: librdkafka's never ended when members of a second topic joined (#4783)."""
    assignor, cluster = CooperativeStickyAssignor(), ClusterView({"flights": 3, "delays": 2})
    owned = {f"f{number}": frozenset[TopicPartition]() for number in range(10)}
    for number in range(15):
        owned[f"d{number}"] = frozenset()
        for generation in (1, 2):
            subscriptions = {
                member: Subscription(
                    topics=FLIGHTS if member.startswith("f") else frozenset({"delays"}),
                    owned=has,
                    generation=generation,
                )
                for member, has in owned.items()
            }
            made = assignor.assign(cluster, subscriptions)
            owned = {member: frozenset(given) for member, given in made.items()}
    given_out = sorted(each for given in owned.values() for each in given)
    assert given_out == everything(cluster)


def everything(cluster: ClusterView) -> list[TopicPartition]:
    counts = cluster.partitions.items()
    return sorted(TopicPartition(topic, each) for topic, count in counts for each in range(count))


def cooperative(members: int, partitions: int) -> tuple[World, list[Application]]:
    """Create a group whose members joined one after another."""
    world = World()
    world.topics = {"flights": partitions}
    applications = []
    for number in range(members):
        application = world.start(f"c{number:02}", CooperativeStickyAssignor())
        applications.append(application)
        world.tell(application, Subscribed(FLIGHTS))
        world.advance(4_000)
    world.advance(10_000)
    return world, applications


def generation(world: World) -> int:
    return world.shard.session.group(world.shard.log, GROUP).generation


def test_a_large_cooperative_group_comes_to_rest() -> None:
    """U3: 30 members rebalanced a hundred times a second (confluent-kafka-python #1090), others
    without end (franz-go #995).
    """
    world, applications = cooperative(30, 37)
    assert world.everybody_is_stable()
    assert generation(world) <= 2 * len(applications)
    shares = {len(each.member.assigned) for each in applications}
    assert shares == {1, 2}
    before = generation(world)
    world.advance(60_000)
    assert generation(world) == before


def test_who_goes_moves_only_what_it_had() -> None:
    """U3: the partitions of remaining members were shuffled (librdkafka #3306)."""
    world, applications = cooperative(3, 6)
    had = {each.name: each.member.assigned for each in applications}
    for each in applications:
        each.words.clear()
    world.kill(applications.pop().name)
    world.advance(20_000)
    for each in applications:
        assert had[each.name] <= each.member.assigned
        assert [what for what, _ in each.words] == [Ownership.ASSIGNED]
    assert sum(len(each.member.assigned) for each in applications) == 6
