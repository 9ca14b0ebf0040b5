"""Which assignor the group uses (C13, C24)."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.group.coordinator.classic.group import ClassicGroup, GroupState
from kohort.wire.messages.membership import JoinGroupRequest


def is_consistent(group: ClassicGroup, request: JoinGroupRequest) -> bool:
    """Whether a join fits the group: same type, and an assignor that all members know (C13).

    A group without members needs a type and an assignor, and takes any.
    """
    names = {protocol.name for protocol in request.protocols}
    if group.state is GroupState.EMPTY or not group.members:
        return bool(request.protocol_type and names)
    return request.protocol_type == group.protocol_type and not names.isdisjoint(candidates(group))


def candidates(group: ClassicGroup) -> frozenset[str]:
    """Return the assignors that every member knows."""
    everybody = len(group.members)
    return frozenset(name for name, count in group.support.items() if count == everybody)


def choose(group: ClassicGroup) -> str:
    """Return the assignor with most votes (C24).

    Each member votes for the first of its list that everybody knows. Kafka leaves open who wins a
    tie; here it is the name that sorts first, so that the same group always chooses the same.
    """
    known = candidates(group)
    votes = dict.fromkeys(known, 0)
    for member in group.members.values():
        votes[_vote((protocol.name for protocol in member.protocols), known)] += 1
    return min(votes, key=lambda name: (-votes[name], name))


def _vote(names: Iterable[str], known: frozenset[str]) -> str:
    return next(name for name in names if name in known)
