"""range and roundrobin compared with kafka-python's, and with the results in Kafka's own tests."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from kohort.group.assignors import (
    BUILTIN_ASSIGNORS,
    Assignor,
    ClusterView,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    Subscription,
)
from kohort.types import TopicPartition

with warnings.catch_warnings():
    # kafka-python reads its schemas with a function that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

TOPICS = ("a", "b", "c", "d")
CLUSTERS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9))
MEMBERS = st.text("mnoé", min_size=1, max_size=4)
SUBSCRIPTIONS = st.dictionaries(MEMBERS, st.frozensets(st.sampled_from(TOPICS)), min_size=1)


class Cluster:
    """The methods of a cluster that kafka-python's assignors call."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self.partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        count = self.partitions.get(topic)
        return set(range(count)) if count else None


@dataclass
class TheirSubscription:
    topics: list[str]


@dataclass
class TheirMember:
    member_id: str
    group_instance_id: str | None
    metadata: TheirSubscription


def ours(
    assignor: Assignor,
    cluster: Mapping[str, int],
    topics: Mapping[str, frozenset[str]],
    static: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, set[TopicPartition]]:
    subscriptions = {
        member: Subscription(topics=wanted, group_instance_id=static.get(member))
        for member, wanted in topics.items()
    }
    assignment = assignor.assign(ClusterView(cluster), subscriptions)
    return {member: set(partitions) for member, partitions in assignment.items()}


def theirs(
    assignor: Any,
    cluster: Mapping[str, int],
    topics: Mapping[str, frozenset[str]],
    static: Mapping[str, str],
) -> dict[str, set[TopicPartition]]:
    """Return kafka-python's result. It loses members unless static ones come first, so they do."""
    members = [
        TheirMember(member, static.get(member), TheirSubscription(sorted(wanted)))
        for member, wanted in sorted(topics.items(), key=lambda item: item[0] not in static)
    ]
    assignment = assignor.assign(Cluster(cluster), members)
    return {
        member: {
            TopicPartition(topic, number)
            for topic, numbers in entry.assigned_partitions
            for number in numbers
        }
        for member, entry in assignment.items()
    }


@given(cluster=CLUSTERS, topics=SUBSCRIPTIONS, data=st.data())
def test_a1_range_is_that_of_kafka_python(
    cluster: dict[str, int], topics: dict[str, frozenset[str]], data: st.DataObject
) -> None:
    static = data.draw(instances(topics))
    expected = theirs(RangePartitionAssignor, cluster, topics, static)
    assert ours(RangeAssignor(), cluster, topics, static) == expected


@given(cluster=CLUSTERS, members=st.frozensets(MEMBERS, min_size=1), data=st.data())
def test_a2_roundrobin_is_that_of_kafka_python(
    cluster: dict[str, int], members: frozenset[str], data: st.DataObject
) -> None:
    """Only with equal subscriptions: otherwise kafka-python 3.0 looks up a tuple as a name."""
    topics = dict.fromkeys(members, frozenset(TOPICS))
    static = data.draw(instances(topics))
    expected = theirs(RoundRobinPartitionAssignor, cluster, topics, static)
    assert ours(RoundRobinAssignor(), cluster, topics, static) == expected


def instances(topics: Mapping[str, frozenset[str]]) -> st.SearchStrategy[dict[str, str]]:
    """Make some of the members static, with instance ids in another order."""
    some = st.lists(st.sampled_from(sorted(topics)), unique=True)
    return some.map(lambda chosen: {m: f"i{n}" for n, m in enumerate(reversed(chosen))})


def test_a2_roundrobin_passes_over_who_does_not_subscribe() -> None:
    """The example in the documentation of Kafka's RoundRobinAssignor."""
    cluster = {"t0": 1, "t1": 2, "t2": 3}
    topics = {
        "m0": frozenset({"t0"}),
        "m1": frozenset({"t0", "t1"}),
        "m2": frozenset({"t0", "t1", "t2"}),
    }
    assert ours(RoundRobinAssignor(), cluster, topics) == {
        "m0": {TopicPartition("t0", 0)},
        "m1": {TopicPartition("t1", 0)},
        "m2": {TopicPartition("t1", 1), *(TopicPartition("t2", n) for n in range(3))},
    }


def test_a1_members_are_sorted_as_java_sorts() -> None:
    """By UTF-16 units a duck (D83E DD86) sorts before U+FFFF; by code points after it."""
    topics = dict.fromkeys(["🦆", "\uffff"], frozenset({"a"}))
    assignment = ours(RangeAssignor(), {"a": 1}, topics)
    assert assignment == {"🦆": {TopicPartition("a", 0)}, "\uffff": set()}


@pytest.mark.parametrize("name", ["range", "roundrobin"])
@given(cluster=CLUSTERS, topics=SUBSCRIPTIONS)
def test_a10_every_partition_goes_to_one_subscriber(
    name: str, cluster: dict[str, int], topics: dict[str, frozenset[str]]
) -> None:
    assignment = ours(BUILTIN_ASSIGNORS[name], cluster, topics)
    given_out = [partition for owned in assignment.values() for partition in owned]
    wanted = frozenset().union(*topics.values())
    assert sorted(given_out) == sorted(
        TopicPartition(topic, number)
        for topic, count in cluster.items()
        if topic in wanted
        for number in range(count)
    )
    for member, owned in assignment.items():
        assert {partition.topic for partition in owned} <= topics[member]


@pytest.mark.parametrize("kind", [set, list, tuple])
@pytest.mark.parametrize("assignor", [RangeAssignor, RoundRobinAssignor, CooperativeStickyAssignor])
def test_who_calls_an_assignor_may_give_it_any_collection(
    kind: Callable[[frozenset[str]], frozenset[str]], assignor: type[Assignor]
) -> None:
    topics = frozenset({"a", "b"})
    strict = {member: Subscription(topics=topics) for member in ("x", "y")}
    loose = {member: Subscription(topics=kind(topics)) for member in ("x", "y")}
    cluster = ClusterView({"a": 3, "b": 4})
    assert assignor().assign(cluster, loose) == assignor().assign(cluster, strict)
