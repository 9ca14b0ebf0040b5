"""Invalid answers of a member's assignor (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.group.subscription import decode_assignment, encode_assignment
from kohort.types import TopicPartition

KINDS = ("twice", "to nobody", "not there", "of no topic")


def spoiled(assignments: Mapping[str, bytes], kind: str) -> dict[str, bytes]:
    """Return assignments as an assignor with a bug would make them.

    Args:
        assignments: The right assignment of each member.
        kind: The bug, one of `KINDS`.
    """
    given = {each: decode_assignment(data)[0] for each, data in assignments.items()}
    everything = frozenset().union(*given.values())
    if kind == "twice":
        given = dict.fromkeys(given, everything)
    elif kind == "to nobody":
        given["nobody"] = everything
    else:
        topic = min((each.topic for each in everything), default="flights")
        wrong = TopicPartition("nowhere" if kind == "of no topic" else topic, 9_999)
        first = min(given)
        given[first] |= {wrong}
    return {each: encode_assignment(partitions) for each, partitions in given.items()}
