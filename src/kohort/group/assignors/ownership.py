"""Ownership before an assignment is computed: settling contradictory claims.

Joining members report their partitions (KIP-429) and their generation (KIP-792). A member
that missed a rebalance may still claim partitions that another one owns: the newer claim holds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from kohort.group.subscription import NO_GENERATION, Subscription
from kohort.types import TopicPartition
from kohort.values import replace

_GENERATION = struct.Struct(">i")


def claimed_generation(subscription: Subscription) -> int:
    """Return the generation of a member's owned partitions, -1 if it reports none.

    Before KIP-792 there was no field for it, so `cooperative-sticky` sends it as user data, which
    holds nothing else (L22). The field takes precedence.
    """
    data = subscription.user_data
    if subscription.generation == NO_GENERATION and data and len(data) == _GENERATION.size:
        generation: int = _GENERATION.unpack(data)[0]
        return max(generation, NO_GENERATION)
    return subscription.generation


def settle_claims(
    subscriptions: Mapping[str, Subscription],
) -> Mapping[str, frozenset[TopicPartition]]:
    """Return the partitions that each member really owns (KIP-792), each with one owner.

    The claim with the highest generation wins; if two claims share it, the partition has no owner
    (L21). A member that no longer subscribes to a topic keeps none of its partitions (L23), but its
    claim still overrides older ones.

    Args:
        subscriptions: The subscription of each member, by member id.
    """
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member, entry in subscriptions.items():
        generation = claimed_generation(entry)
        for partition in entry.owned:
            known = best.get(partition)
            if known is None or generation > known[0]:
                best[partition] = generation, member
            elif generation == known[0]:
                best[partition] = generation, None
    kept: dict[str, set[TopicPartition]] = {member: set() for member in subscriptions}
    for partition, (_, owner) in best.items():
        if owner is not None and partition.topic in subscriptions[owner].topics:
            kept[owner].add(partition)
    return {member: frozenset(partitions) for member, partitions in kept.items()}


def validate_subscription(
    subscriptions: Mapping[str, Subscription],
) -> dict[str, Subscription]:
    """Return the subscriptions with owned partitions that do not overlap (KIP-792).

    Call it first in the `assign` of your own assignor if it uses owned partitions:
    partitions that `settle_claims` takes from a member are removed from its `owned`.

    Args:
        subscriptions: The subscription of each member, by member id.
    """
    kept = settle_claims(subscriptions)
    return {member: replace(entry, owned=kept[member]) for member, entry in subscriptions.items()}


def without_moving(
    assignment: Mapping[str, Iterable[TopicPartition]],
    subscriptions: Mapping[str, Subscription],
) -> dict[str, list[TopicPartition]]:
    """Return the part of an assignment that a cooperative group may take at once (L24).

    A partition that another member still reads must be released first. It is left out now; its
    owner releases it and rejoins, and the next rebalance assigns it.

    Args:
        assignment: The final partitions of each member.
        subscriptions: The subscriptions as received, because stale claims must be released too.
    """
    kept = settle_claims(subscriptions)
    claimed = frozenset().union(*(entry.owned for entry in subscriptions.values()))
    return {
        member: [each for each in partitions if each in kept[member] or each not in claimed]
        for member, partitions in assignment.items()
    }


def given_twice(
    assignment: Mapping[str, frozenset[TopicPartition]],
) -> tuple[TopicPartition, str, str] | None:
    """Return a partition that was assigned twice, and both members; None if there is none.

    Args:
        assignment: The partitions of each member, by member id.
    """
    if sum(map(len, assignment.values())) == len(frozenset().union(*assignment.values())):
        return None
    owners: dict[TopicPartition, str] = {}
    for member, partitions in assignment.items():
        for partition in sorted(partitions):
            other = owners.setdefault(partition, member)
            if other != member:
                return partition, other, member
    return None
