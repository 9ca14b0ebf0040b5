"""The server's assignors for groups that come from the clients' assignors (K62, K63)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kohort.group.assignors import (
    BUILTIN_ASSIGNORS,
    SERVER_ASSIGNORS,
    ClusterView,
    MemberSubscription,
    Subscription,
)
from kohort.types import TopicPartition

TOPICS = {"a": 5, "b": 4}
MEMBERS = ("m1", "m2", "m3")
RACKS = {topic: [frozenset({f"r{n % 3}"}) for n in range(count)] for topic, count in TOPICS.items()}


def by_clients(name: str) -> dict[str, frozenset[TopicPartition]]:
    subscriptions = {member: Subscription(topics=frozenset(TOPICS)) for member in MEMBERS}
    made = BUILTIN_ASSIGNORS[name].assign(ClusterView(TOPICS), subscriptions)
    return {member: frozenset(given) for member, given in made.items()}


def by_server(name: str, *, racks: bool = False) -> Mapping[str, frozenset[TopicPartition]]:
    members = {
        member: MemberSubscription(topics=frozenset(TOPICS), rack_id=f"r{at}")
        for at, member in enumerate(MEMBERS)
    }
    return SERVER_ASSIGNORS[name].assign(members, TOPICS, RACKS if racks else None)


def test_k62_range_is_the_same_at_the_server() -> None:
    assert by_server("range") == by_clients("range")


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky", "roundrobin"])
def test_k62_the_even_ones_are_uniform_at_the_server(name: str) -> None:
    ours = sorted(len(given) for given in by_clients(name).values())
    assert sorted(len(given) for given in by_server("uniform").values()) == ours


@pytest.mark.parametrize("name", ["uniform", "range"])
def test_k63_the_servers_assignors_do_not_look_at_racks(name: str) -> None:
    assert by_server(name, racks=True) == by_server(name)
