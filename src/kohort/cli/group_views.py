"""A group as tables and as JSON, with the column names of Kafka's own tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from kohort.cli.shared import NONE, by_topic, listed
from kohort.errors import KafkaError, PartialFailureError
from kohort.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kohort.client import AdminClient, GroupDescription
    from kohort.client.admin.values import MemberDescription

Columns: TypeAlias = tuple[str, ...]
Rows: TypeAlias = list[tuple[object, ...]]

# The timestamp for the end of a partition in ListOffsets.
LATEST = -1
# Columns to drop on a narrow terminal, the least important first.
DISPENSABLE = ("GROUP", "GROUP-INSTANCE-ID", "HOST", "CONSUMER-ID")
# For offsets, the numbers matter more than the owner of each row.
DISPENSABLE_OF_OFFSETS = (*DISPENSABLE, "LEADER-EPOCH", "CLIENT-ID")
_MOST_NAMED = 5


class Position(Struct, frozen=True):
    """One partition of a group, as `kafka-consumer-groups --describe` shows it.

    Attributes:
        partition: The partition.
        committed: The group's committed offset, None if there is none.
        end: Offset after the last record; None if no broker answered.
        owner: The member that owns the partition, if any.
    """

    partition: TopicPartition
    committed: OffsetAndMetadata | None
    end: int | None
    owner: MemberDescription | None

    @property
    def offset(self) -> int | None:
        """The committed offset."""
        return self.committed.offset if self.committed else None

    @property
    def lag(self) -> int | None:
        """Records after the committed offset."""
        if self.offset is None or self.end is None:
            return None
        return max(self.end - self.offset, 0)

    @property
    def leader_epoch(self) -> int | None:
        """Leader epoch of the last record that was read."""
        known = self.committed is not None and self.committed.leader_epoch >= 0
        return self.committed.leader_epoch if self.committed and known else None


def positions_of(
    admin: AdminClient, described: GroupDescription
) -> tuple[list[Position], KafkaError | None]:
    """Return the partitions that a group has committed, owns, or will own.

    Returns:
        The partitions, and why the ends of some are not known, for instance without a leader.

    Raises:
        KafkaError: The brokers do not answer.
    """
    committed = admin.list_group_offsets(described.group_id)
    owners = {partition: member for member in described.members for partition in member.assignment}
    promised = (tp for member in described.members for tp in member.target_assignment or ())
    wanted = sorted({*committed, *owners, *promised})
    ends: dict[object, object] = {}
    unknown: KafkaError | None = None
    try:
        if wanted:
            ends.update(admin.list_offsets(dict.fromkeys(wanted, LATEST)))
    except KafkaError as error:
        unknown = error
        if isinstance(error, PartialFailureError):
            ends.update(error.results)
    known = {each: end for each in wanted if isinstance(end := ends.get(each), int)}
    positions = [
        Position(each, committed.get(each), known.get(each), owners.get(each)) for each in wanted
    ]
    return positions, unknown


def offsets_table(
    described: GroupDescription, positions: Sequence[Position], *, verbose: bool
) -> tuple[Columns, Rows]:
    """Return the table of offsets and lags."""
    columns = (
        ("GROUP", "TOPIC", "PARTITION")
        + ("LEADER-EPOCH",) * verbose
        + ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
    )
    rows: Rows = []
    for each in positions:
        owner = each.owner
        rows.append(
            (described.group_id, *each.partition)
            + ((each.leader_epoch,) if verbose else ())
            + (each.offset, each.end, each.lag)
            + ((owner.member_id, owner.client_host, owner.client_id) if owner else (None,) * 3)
        )
    return columns, rows


def members_table(described: GroupDescription, *, verbose: bool) -> tuple[Columns, Rows]:
    """Return the table of members, with the number or the list of their partitions."""
    has_static = any(member.group_instance_id is not None for member in described.members)
    has_both = len({member.type for member in described.members}) > 1
    columns = (
        ("GROUP", "CONSUMER-ID")
        + ("GROUP-INSTANCE-ID",) * has_static
        + ("HOST", "CLIENT-ID", "#PARTITIONS")
        + ("CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT") * verbose
        + ("TYPE",) * (verbose and has_both)
    )
    rows: Rows = []
    for each in described.members:
        target = each.target_assignment
        rows.append(
            (described.group_id, each.member_id)
            + ((each.group_instance_id,) if has_static else ())
            + (each.client_host, each.client_id, len(each.assignment))
            + ((each.epoch, listed(each.assignment)) if verbose else ())
            + ((described.target_epoch, listed(target or ())) if verbose else ())
            + ((each.type,) if verbose and has_both else ())
        )
    return columns, rows


def state_table(described: GroupDescription) -> tuple[Columns, Rows]:
    """Return the state of a group in one row; epochs are those of KIP-848."""
    node = described.coordinator
    has_epochs = described.epoch is not None
    columns = (
        ("GROUP", "COORDINATOR (ID)", "TYPE", "ASSIGNMENT-STRATEGY", "STATE")
        + ("GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH") * has_epochs
        + ("#MEMBERS",)
    )
    row = (
        (described.group_id, f"{node.host}:{node.port} ({node.node_id})" if node else None)
        + (described.type, described.assignor, described.state)
        + ((described.epoch, described.target_epoch) if has_epochs else ())
        + (len(described.members),)
    )
    return columns, [row]


def headline(described: GroupDescription) -> str:
    """Return the state of a group in one line."""
    parts = {
        "GROUP": described.group_id,
        "TYPE": described.type,
        "STATE": described.state,
        "ASSIGNMENT-STRATEGY": described.assignor or NONE,
        "GROUP-EPOCH": described.epoch,
        "TARGET-ASSIGNMENT-EPOCH": described.target_epoch,
        "#MEMBERS": len(described.members),
    }
    return "  ".join(f"{name} {value}" for name, value in parts.items() if value is not None)


def named(members: Sequence[MemberDescription]) -> str:
    """Return the members' names for a refusal."""
    shown = [
        f"{each.client_id} ({each.group_instance_id or each.member_id} at {each.client_host})"
        for each in members[:_MOST_NAMED]
    ]
    more = len(members) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def as_dict(described: GroupDescription, positions: Sequence[Position]) -> dict[str, object]:
    """Return a group for JSON, with its offsets."""
    partitions = [_position(each) for each in positions]
    return {**members_as_dict(described), "partitions": partitions}


def state_as_dict(described: GroupDescription) -> dict[str, object]:
    """Return the state of a group for JSON."""
    node = described.coordinator
    return {
        "group": described.group_id,
        "coordinator": node and {"id": node.node_id, "host": node.host, "port": node.port},
        "type": described.type,
        "state": described.state,
        "assignor": described.assignor,
        "epoch": described.epoch,
        "target_assignment_epoch": described.target_epoch,
        "member_count": len(described.members),
    }


def members_as_dict(described: GroupDescription) -> dict[str, object]:
    """Return a group for JSON, with its members."""
    return {**state_as_dict(described), "members": [_member(each) for each in described.members]}


def _position(position: Position) -> dict[str, object]:
    owner = position.owner
    return {
        "topic": position.partition.topic,
        "partition": position.partition.partition,
        "leader_epoch": position.leader_epoch,
        "current_offset": position.offset,
        "log_end_offset": position.end,
        "lag": position.lag,
        "consumer_id": owner.member_id if owner else None,
        "host": owner.client_host if owner else None,
        "client_id": owner.client_id if owner else None,
    }


def _member(member: MemberDescription) -> dict[str, object]:
    target = member.target_assignment
    return {
        "consumer_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "host": member.client_host,
        "client_id": member.client_id,
        "type": member.type,
        "epoch": member.epoch,
        "topics": sorted(member.topics),
        "pattern": member.pattern,
        "assignment": by_topic(member.assignment),
        "target_assignment": None if target is None else by_topic(target),
    }
