"""A classic group while it lives: members, who is parked where, which state.

All values. A method that changes something returns the changed group; maps are persistent, so that
costs O(log n) whatever the size of the group.

Assignments are not here: they are log state, written with the record that makes the group stable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from immutables import Map

from kohort.group.coordinator.group import Group, Parked
from kohort.group.machine import State
from kohort.values import dataclass, replace

V = TypeVar("V")


class GroupState(State):
    """The states of a classic group (C5); values as Kafka's tools print them."""

    DEAD = "Dead"
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class Protocol:
    """An assignor that a member knows, and its subscription in that assignor's bytes."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of a classic group.

    Attributes:
        member_id: Id that the coordinator gave it.
        group_instance_id: Id that its operator gave it (KIP-345), None for a dynamic member.
        client_id: From the header of its join.
        client_host: Where it joined from.
        rebalance_timeout_ms: How long it may take to join again.
        session_timeout_ms: How long it may be silent.
        protocols: Assignors that it knows, the one it likes best first.
        is_new: Whether its first join is still parked: then it has no session yet (C17).
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    is_new: bool = False

    @property
    def size(self) -> int:
        """About how many bytes it takes in the log: what its client chose freely."""
        ids = (self.member_id, self.group_instance_id or "", self.client_id)
        lists = sum(len(each.name) + len(each.metadata) for each in self.protocols)
        return lists + sum(map(len, ids))

    def metadata(self, protocol: str | None) -> bytes:
        """Return its subscription for an assignor, empty when it does not know it."""
        return next((p.metadata for p in self.protocols if p.name == protocol), b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroup(Group):
    """A classic group.

    Attributes:
        state: Its state.
        protocol_type: What kind of group ("consumer"), empty before the first member.
        protocol: Name of the assignor in use, None when there is none.
        leader: Member id of the leader, None when there is none.
        members: Members by member id.
        static: Member ids by group instance id.
        pending: Ids given out that have not come back yet, with the deadline of each running (C15).
        size: About how many bytes the members take in the log; kept with `members`.
        support: How many members know each assignor; kept with `members`, for O(1) checks.
        joining: Members whose JoinGroup is parked.
        syncing: Members whose SyncGroup is parked.
        unsynced: Members of this generation that have not asked for their assignment (C42).
        initial: Whether the running rebalance is the first one, out of Empty (C20).
        member_added: Whether somebody was added since the initial delay was last set (C20).
        delay_left_ms: How much longer the initial delay may be extended (C20).
        last_delay_ms: The delay that is running (C20).
    """

    state: GroupState = GroupState.DEAD
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: Map[str, Member] = Map()
    static: Map[str, str] = Map()
    pending: Map[str, None] = Map()
    size: int = 0
    support: Map[str, int] = Map()
    joining: Map[str, Parked] = Map()
    syncing: Map[str, Parked] = Map()
    unsynced: Map[str, None] = Map()
    initial: bool = False
    member_added: bool = False
    delay_left_ms: int = 0
    last_delay_ms: int = 0

    # ------------------------------------------------------------------------------- questions

    @property
    def all_joined(self) -> bool:
        """Whether everybody's join is parked and nobody was told to come back with its id (C16)."""
        return len(self.joining) == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def sorted_members(self) -> list[Member]:
        """Return the members by id: the order of a map differs from process to process."""
        return [member for _, member in sorted(self.members.items())]

    # ----------------------------------------------------------------------------- who belongs

    def with_member(self, member: Member) -> ClassicGroup:
        """Add a member, or put one with the same id in its place."""
        old = self.members.get(member.member_id)
        static = self.static
        if member.group_instance_id is not None:
            static = static.set(member.group_instance_id, member.member_id)
        return replace(
            self,
            members=self.members.set(member.member_id, member),
            static=static,
            pending=_without(self.pending, member.member_id),
            size=self.size + member.size - (old.size if old else 0),
            support=_recount(self.support, old.protocols if old else (), member.protocols),
            leader=self.leader if self.leader is not None else member.member_id,
        )

    def without_member(self, member_id: str) -> ClassicGroup:
        """Remove a member or a pending id. A leader's role goes to some other member (C25)."""
        member = self.members.get(member_id)
        if member is None:
            return replace(self, pending=_without(self.pending, member_id))
        members = self.members.delete(member_id)
        static = self.static
        if member.group_instance_id is not None:
            static = _without(static, member.group_instance_id)
        leader = self.leader
        if leader == member_id:
            leader = min(members, default=None)
        return replace(
            self,
            members=members,
            static=static,
            size=self.size - member.size,
            support=_recount(self.support, member.protocols, ()),
            leader=leader,
            joining=_without(self.joining, member_id),
            syncing=_without(self.syncing, member_id),
            unsynced=_without(self.unsynced, member_id),
        )


def _without(entries: Map[str, V], key: str) -> Map[str, V]:
    return entries.delete(key) if key in entries else entries


def _recount(
    support: Map[str, int], gone: Iterable[Protocol], come: Iterable[Protocol]
) -> Map[str, int]:
    """Count by name: a client may list one twice."""
    for name in {protocol.name for protocol in gone}:
        left = support[name] - 1
        support = support.set(name, left) if left else support.delete(name)
    for name in {protocol.name for protocol in come}:
        support = support.set(name, support.get(name, 0) + 1)
    return support
