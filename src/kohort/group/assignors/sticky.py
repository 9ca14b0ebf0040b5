"""The eager sticky assignor, whose members give up all partitions before a rebalance (KIP-54).

Its members own nothing when they join. They report their former partitions and generation to the
leader in user data, in Kafka's format: an array of topics, each with its partitions, then the
generation, which the oldest version of the format lacks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import ClassVar

from kohort.group.assignors.interface import Assignment, Assignor, ClusterView, GroupMetadata
from kohort.group.assignors.problem import build, by_member, solve
from kohort.group.subscription import NO_GENERATION, Subscription
from kohort.types import TopicPartition
from kohort.values import replace

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class StickyAssignor(Assignor):
    """Kafka's `sticky`, but optimal: even loads, then the fewest moves, then racks (KIP-881)."""

    name: ClassVar[str] = "sticky"
    version: ClassVar[int] = 1

    def __init__(self) -> None:
        self._had: bytes | None = None

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of each member, based on the former ones in its user data."""
        told = {member: _with_user_data(entry) for member, entry in subscriptions.items()}
        problem = build(cluster, told)
        return by_member(problem, solve(problem))

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:  # noqa: ARG002 - former partitions of any topic
        """Return this member's former partitions, None if it never had any."""
        return self._had

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        """Remember this member's partitions for its next join."""
        self._had = encode_user_data(assignment.partitions, metadata.generation_id)


def encode_user_data(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """Return the user data with which a member of the sticky assignor reports its partitions.

    Args:
        partitions: Its partitions.
        generation: The generation in which it got them.
    """
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    parts = [_INT32.pack(len(topics))]
    for topic, numbers in topics.items():
        name = topic.encode()
        parts += _INT16.pack(len(name)), name, _INT32.pack(len(numbers))
        parts += map(_INT32.pack, numbers)
    return b"".join([*parts, _INT32.pack(generation)])


def decode_user_data(data: bytes) -> tuple[frozenset[TopicPartition], int]:
    """Return a member's former partitions and generation; none if invalid, as in Kafka."""
    try:
        return _read(memoryview(data))
    except (struct.error, UnicodeDecodeError, ValueError):
        return frozenset(), NO_GENERATION


def _with_user_data(entry: Subscription) -> Subscription:
    owned, generation = decode_user_data(entry.user_data) if entry.user_data else (frozenset(), -1)
    return replace(entry, owned=owned, generation=generation, user_data=None)


def _read(data: memoryview) -> tuple[frozenset[TopicPartition], int]:
    owned: set[TopicPartition] = set()
    topics, at = _INT32.unpack_from(data)[0], _INT32.size
    for _ in range(topics):
        size, at = _INT16.unpack_from(data, at)[0], at + _INT16.size
        topic, at = str(data[at : at + size], "utf-8"), at + size
        count, at = _INT32.unpack_from(data, at)[0], at + _INT32.size
        if size < 0 or count < 0 or at + count * _INT32.size > len(data):
            raise ValueError("a length that the data does not have")
        numbers = struct.unpack_from(f">{count}i", data, at)
        at += count * _INT32.size
        owned.update(TopicPartition(topic, number) for number in numbers)
    if topics < 0:
        raise ValueError("a negative length")
    # Version 0 has no generation.
    generation = _INT32.unpack_from(data, at)[0] if at < len(data) else NO_GENERATION
    return frozenset(owned), generation
