"""Classic groups in the log: the values, and the records that hold them (C70, C72).

Only the subscription for the chosen assignor is written, so after a load a member that joins again
with its whole list counts as changed (KAFKA-2017).
"""

from __future__ import annotations

from collections.abc import Mapping

from immutables import Map

from kohort.group.coordinator.classic.group import ClassicGroup, GroupState, Member
from kohort.group.coordinator.classic.group import Protocol as AssignorProtocol
from kohort.values import dataclass
from kohort.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
)


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member in the log."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group in the log: as it was when it last became stable or empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp: int
    members: Map[str, StoredMember]

    def assignment_of(self, member_id: str) -> bytes:
        """Return what a member was given; members the leader forgot got nothing (C41)."""
        member = self.members.get(member_id)
        return member.assignment if member else b""


def stored_group(value: GroupMetadataValue) -> StoredGroup:
    """Read a record's value."""
    members = {
        entry.member_id: StoredMember(
            entry.member_id,
            entry.group_instance_id,
            entry.client_id,
            entry.client_host,
            # Version 0 had one time for both.
            entry.rebalance_timeout or entry.session_timeout,
            entry.session_timeout,
            entry.subscription,
            entry.assignment,
        )
        for entry in value.members
    }
    return StoredGroup(
        value.protocol_type,
        value.generation,
        value.protocol,
        value.leader,
        value.current_state_timestamp,
        Map(members),
    )


def loaded_group(group_id: str, stored: StoredGroup) -> ClassicGroup:
    """Return the live group for one in the log: stable if it has members, else empty (C72)."""
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
        protocols=(AssignorProtocol(protocol, entry.subscription),),
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


def group_tombstone(group_id: str) -> GroupRecord:
    """Return the record that forgets a group."""
    return GroupRecord(GroupMetadataKey(group=group_id), None)
