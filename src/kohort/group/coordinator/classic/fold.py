"""Classic groups in the log: their values and the fold of their records (C70, C72).

Only the subscription for the chosen assignor is written, so a member that rejoins with its whole
list after a load counts as changed (KAFKA-2017).
"""

from __future__ import annotations

from typing import cast

from immutables import Map
from msgspec import Struct

from kohort.group.coordinator.records import GroupsPart, L
from kohort.wire.messages.group_records import GroupMetadataKey, GroupMetadataValue, GroupRecord


class StoredMember(Struct, frozen=True):
    """A member in the log."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class StoredGroup(Struct, frozen=True):
    """A group in the log: as it was when it last became stable or empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp: int
    members: Map[str, StoredMember]

    def assignment_of(self, member_id: str) -> bytes:
        """Return a member's assignment; members that the leader left out have none (C41)."""
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


STORED: GroupsPart[StoredGroup] = GroupsPart("classic")


def apply(log: L, record: GroupRecord) -> L:
    """Add or delete a group by its record."""
    key, value = cast("GroupMetadataKey", record.key), record.value
    stored = stored_group(value) if isinstance(value, GroupMetadataValue) else None
    return STORED.with_entry(log, key.group, stored)


def group_tombstone(group_id: str) -> GroupRecord:
    """Return the record that deletes a group."""
    return GroupRecord(GroupMetadataKey(group=group_id), None)
