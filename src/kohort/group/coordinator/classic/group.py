"""A classic group while it lives, and the effects of one event on it.

A group is a value: its members, their parked requests, its state. A method that changes something
returns the changed group; maps are persistent, so each change costs O(log n).


Assignments are log state (`fold`) instead, written with the record that makes the group stable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from immutables import Map
from msgspec import Struct

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic.fold import STORED, StoredGroup, StoredMember, group_tombstone
from kohort.group.coordinator.decision import LiveGroupDecision
from kohort.group.coordinator.events import PendingExpired, RequestArrived
from kohort.group.coordinator.records import GroupLog, GroupsPart
from kohort.group.coordinator.refusals import not_found
from kohort.group.coordinator.session import LiveGroup, Parked
from kohort.group.coordinator.topics import TopicsImage
from kohort.group.machine import State
from kohort.group.subscription import PROTOCOL_TYPE
from kohort.values import replace
from kohort.wire.consumer_protocol import subscribed_topics
from kohort.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
)
from kohort.wire.messages.groups import DescribedGroup, DescribedGroupMember, ListedGroup
from kohort.wire.messages.membership import JoinGroupRequest
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequestGroup
from kohort.wire.messages.txn_requests import TxnOffsetCommitRequest

V = TypeVar("V")

_GROUP_ID_NOT_FOUND_SINCE = 9


class GroupState(State):
    """The states of a classic group (C5); values as Kafka's tools print them."""

    DEAD = "Dead"
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class Protocol(Struct, frozen=True):
    """An assignor that a member supports, and its encoded subscription for that assignor."""

    name: str
    metadata: bytes


class Member(Struct, frozen=True, kw_only=True):
    """A member of a classic group.

    Attributes:
        member_id: Id that the coordinator assigned.
        group_instance_id: Id that its operator configured (KIP-345), None for a dynamic member.
        client_id: From the header of its join.
        client_host: The host that it joined from.
        rebalance_timeout_ms: Its limit for rejoining.
        session_timeout_ms: How long it may be silent.
        protocols: Its assignors, in order of preference.
        is_new: Whether its first join is still parked, so that it has no session yet (C17).
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
        """Return its approximate size in the log, counting the fields that its client chooses."""
        ids = (self.member_id, self.group_instance_id or "", self.client_id)
        lists = sum(len(each.name) + len(each.metadata) for each in self.protocols)
        return lists + sum(map(len, ids))

    def metadata(self, protocol: str | None) -> bytes:
        """Return its subscription for an assignor, empty if it does not support it."""
        return next((p.metadata for p in self.protocols if p.name == protocol), b"")


class ClassicGroup(LiveGroup, frozen=True, kw_only=True):
    """A classic group.

    Attributes:
        state: Its state.
        protocol_type: The protocol type ("consumer"), empty before the first member.
        protocol: Name of the chosen assignor, None if there is none.
        leader: Member id of the leader, None if there is none.
        members: Members by member id.
        static: Member ids by group instance id.
        pending: Ids issued and not used yet, each with a running deadline (C15).
        size: Approximate bytes of the members in the log; updated with `members`.
        support: Number of members with each assignor; updated with `members`, for O(1) checks.
        joining: Members whose JoinGroup is parked.
        syncing: Members whose SyncGroup is parked.
        unsynced: Members of this generation that have not sent SyncGroup (C42).
        initial: Whether the running rebalance is the first one, from Empty (C20).
        member_added: Whether a member was added since the initial delay was last set (C20).
        delay_left_ms: How much longer the initial delay may be extended (C20).
        last_delay_ms: The running delay (C20).
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
        """Return whether all members' joins are parked and no issued id is pending (C16)."""
        return len(self.joining) == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of the members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def sorted_members(self) -> list[Member]:
        """Return the members in order of id; the order of a map varies between processes."""
        return [member for _, member in sorted(self.members.items())]

    # ----------------------------------------------------------------------------- who belongs

    def with_member(self, member: Member) -> ClassicGroup:
        """Return the group with a member added, or replaced if the id exists."""
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
        """Return the group without a member or pending id; a removed leader is replaced (C25)."""
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

    # ------------------------------------------------------------------- what all kinds are asked

    def commit_error(
        self, commit: RequestArrived[OffsetCommitRequest], _topics: TopicsImage
    ) -> ErrorCode | None:
        """C50, C51: return the error for a commit; a fenced member's partitions may have moved.

        A commit without a generation comes from a tool, or from a consumer with manually assigned
        partitions. Both may store positions under a group id.
        """
        request = commit.request
        generation = request.generation_id_or_member_epoch
        if generation < 0 and self.state in (GroupState.DEAD, GroupState.EMPTY):
            return None
        if self.state is GroupState.DEAD:
            newer = commit.version >= _GROUP_ID_NOT_FOUND_SINCE
            return ErrorCode.GROUP_ID_NOT_FOUND if newer else ErrorCode.ILLEGAL_GENERATION
        error = generation_error(self, request.member_id, request.group_instance_id, generation)
        if error is None and self.state is GroupState.COMPLETING_REBALANCE:
            # During a rebalance, the next owners are unknown.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return error

    def transactional_commit_error(self, request: TxnOffsetCommitRequest) -> ErrorCode | None:
        """C53: return the error for a member id or generation that is not current."""
        generation = request.generation_id
        named = generation >= 0 or request.member_id or request.group_instance_id is not None
        if not named or (generation < 0 and self.state in (GroupState.DEAD, GroupState.EMPTY)):
            return None
        if self.state is GroupState.DEAD:
            return ErrorCode.ILLEGAL_GENERATION
        return generation_error(self, request.member_id, request.group_instance_id, generation)

    def fetch_error(self, _request: OffsetFetchRequestGroup) -> ErrorCode | None:
        """C55: return no error: any client may fetch the positions of a classic group."""
        return None

    def deletion_error(self) -> ErrorCode | None:
        """C57: return the error for a group with members, which is in use."""
        if self.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return None if self.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def offset_deletion_error(self) -> ErrorCode | None:
        """C56: return the error if the members are not consumers: their topics are unknown."""
        if self.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        in_use = self.state is not GroupState.EMPTY and self.protocol_type != PROTOCOL_TYPE
        return ErrorCode.NON_EMPTY_GROUP if in_use else None

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member reads or may read the topic (C56, C61).

        Invalid metadata counts as a subscription to every topic. A group of another type has no
        subscriptions that the coordinator can read. A member whose first join is parked counts only
        from the next generation on, unless it is the only one.
        """
        if self.protocol_type != PROTOCOL_TYPE or not self.members:
            return False
        members = [member for member in self.members.values() if not member.is_new]
        if not members:
            return True
        metadata = (member.metadata(self.protocol) for member in members)
        return any(topics is None or topic in topics for topics in map(subscribed_topics, metadata))

    @property
    def may_expire(self) -> bool:
        """C60: return False during a rebalance, and if members are not consumers."""
        are_consumers = self.protocol_type == PROTOCOL_TYPE
        return self.state is GroupState.EMPTY or (self.state is GroupState.STABLE and are_consumers)

    def unused_since(self, log: GroupLog) -> int | None:
        """C60: return when the last member left: without members, retention counts from then."""
        stored = STORED.of(log).get(self.group_id)
        if self.state is not GroupState.EMPTY or stored is None or not stored.protocol_type:
            return None
        return stored.state_timestamp if stored.state_timestamp >= 0 else None

    def is_in(self, log: GroupLog) -> bool:
        """Return whether it was written to the log."""
        return self.group_id in STORED.of(log)

    def tombstones(self) -> tuple[GroupRecord, ...]:
        """Return the record that deletes it."""
        return (group_tombstone(self.group_id),)

    def described(self, log: GroupLog, version: int) -> DescribedGroup:
        """C58: describe the group; subscriptions are shown only while it is stable.

        The last assignments are always shown, even during a rebalance.
        """
        if self.state is GroupState.DEAD:
            return not_found(self.group_id, version, f"Group {self.group_id} not found.")
        stable = self.state is GroupState.STABLE
        stored = STORED.of(log).get(self.group_id)
        return DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type,
            protocol_data=(self.protocol or "") if stable else "",
            members=tuple(
                _described(member, stored, member.metadata(self.protocol) if stable else b"")
                for member in self.sorted_members()
            ),
        )

    def listed(self) -> ListedGroup:
        """C59: return its entry in a list."""
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type,
            group_state=self.state.value,
            group_type="classic",
        )


LIVE: GroupsPart[ClassicGroup] = GroupsPart("classic")
"""Groups with members or pending ids; all others are wholly in the log."""


def _described(member: Member, stored: StoredGroup | None, metadata: bytes) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=metadata,
        member_assignment=stored.assignment_of(member.member_id) if stored else b"",
    )


def _without(entries: Map[str, V], key: str) -> Map[str, V]:
    return entries.delete(key) if key in entries else entries


def _recount(
    support: Map[str, int], gone: Iterable[Protocol], come: Iterable[Protocol]
) -> Map[str, int]:
    """Update the counts by distinct name, because a client may list an assignor twice."""
    for name in {protocol.name for protocol in gone}:
        left = support[name] - 1
        support = support.set(name, left) if left else support.delete(name)
    for name in {protocol.name for protocol in come}:
        support = support.set(name, support.get(name, 0) + 1)
    return support


# --------------------------------------------------------------------------------- the sender


def member_error(
    group: ClassicGroup, member_id: str, group_instance_id: str | None
) -> ErrorCode | None:
    """Return the error for a sender that is not the member it claims to be, else None (C18)."""
    if group_instance_id is not None:
        holder = group.static.get(group_instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return None


def generation_error(
    group: ClassicGroup, member_id: str, group_instance_id: str | None, generation: int
) -> ErrorCode | None:
    """Return as `member_error`, or the error for a generation that differs."""
    error = member_error(group, member_id, group_instance_id)
    if error is None and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


# ----------------------------------------------------------------- which assignor the group uses


def is_consistent(group: ClassicGroup, request: JoinGroupRequest) -> bool:
    """Return whether a join has the group's type and an assignor of all members (C13).

    A group without members accepts any type and assignor.
    """
    names = {protocol.name for protocol in request.protocols}
    if group.state is GroupState.EMPTY or not group.members:
        return bool(request.protocol_type and names)
    return request.protocol_type == group.protocol_type and not names.isdisjoint(candidates(group))


def candidates(group: ClassicGroup) -> frozenset[str]:
    """Return the assignors that every member supports."""
    total = len(group.members)
    return frozenset(name for name, count in group.support.items() if count == total)


def choose(group: ClassicGroup) -> str:
    """Return the assignor with the most votes (C24).

    Each member votes for the first assignor of its list that all members support. Kafka does not
    define who wins a tie; here the name that sorts first wins, so the choice is deterministic.
    """
    known = candidates(group)
    votes = dict.fromkeys(known, 0)
    for member in group.members.values():
        votes[_vote((protocol.name for protocol in member.protocols), known)] += 1
    return min(votes, key=lambda name: (-votes[name], name))


def _vote(names: Iterable[str], known: frozenset[str]) -> str:
    return next(name for name in names if name in known)


# ------------------------------------------------------------------------------------- the log


def loaded_group(group_id: str, stored: StoredGroup) -> ClassicGroup:
    """Return the live group for a stored one: stable if it has members, else empty (C72)."""
    group = ClassicGroup(
        group_id=group_id,
        state=GroupState.STABLE if stored.members else GroupState.EMPTY,
        generation=stored.generation,
        protocol_type=stored.protocol_type,
        protocol=stored.protocol,
        leader=stored.leader,
    )
    for _, entry in sorted(stored.members.items()):
        group = group.with_member(_loaded_member(entry, stored.protocol or ""))
    return group


def _loaded_member(entry: StoredMember, protocol: str) -> Member:
    return Member(
        member_id=entry.member_id,
        group_instance_id=entry.group_instance_id,
        client_id=entry.client_id,
        client_host=entry.client_host,
        rebalance_timeout_ms=entry.rebalance_timeout_ms,
        session_timeout_ms=entry.session_timeout_ms,
        protocols=(Protocol(protocol, entry.subscription),),
    )


def group_record(
    group: ClassicGroup, assignments: Mapping[str, bytes], wall_ms: int
) -> GroupRecord:
    """Return the record of a group whose members have these assignments."""
    members = tuple(
        MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(group.protocol),
            assignment=assignments.get(member.member_id, b""),
        )
        for member in group.sorted_members()
    )
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=wall_ms,
        members=members,
    )
    return GroupRecord(GroupMetadataKey(group=group.group_id), value)


# ---------------------------------------------------------------------------------------- one event


class ClassicDecision(LiveGroupDecision[ClassicGroup], kw_only=True):
    """One group, and the effects on it."""

    @property
    def state(self) -> GroupState:
        """Return the group's state."""
        return self.group.state

    @property
    def existing(self) -> ClassicGroup:
        """Return the group; a missing one is in state `DEAD`."""
        return self.group

    def write_group(self, assignments: dict[str, bytes]) -> None:
        """Append a record of the group with these assignments."""
        self.records.append(group_record(self.group, assignments, self.wall_ms))

    def ended(self) -> None:
        """C57, C60: drop the group's session state, including issued member ids."""
        for member_id in self.group.pending:
            self.cancel(PendingExpired(self.group.group_id, member_id))
        self.enter(GroupState.DEAD)
