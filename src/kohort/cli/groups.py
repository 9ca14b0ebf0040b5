"""`kohort groups`: look at groups, under the column names that Kafka's own tools use."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from kohort.types import TopicPartition
from kohort.values import dataclass

if TYPE_CHECKING:
    from kohort.client import AdminClient, GroupDescription
    from kohort.client.admin_values import MemberDescription

app = typer.Typer(help="List and describe consumer groups.", no_args_is_help=True)

Bootstrap = Annotated[
    str,
    typer.Option("--bootstrap-servers", "--bootstrap-server", "-b", metavar="HOST:PORT"),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]
_NONE = "-"
# A person waits for the answer, so not for the minute that a program may.
_PATIENCE_MS = 10_000
# The timestamp that stands for the end of a partition in ListOffsets.
LATEST = -1


@dataclass(frozen=True, slots=True)
class Position:
    """One partition of a group, as `kafka-consumer-groups --describe` shows it.

    Attributes:
        partition: The partition.
        committed: The group's offset, None when it has none.
        end: Offset after the last record.
        member_id: Who owns the partition, empty when nobody does.
        host: Where the owner runs.
        client_id: What the owner calls itself.
    """

    partition: TopicPartition
    committed: int | None
    end: int
    member_id: str
    host: str
    client_id: str

    @property
    def lag(self) -> int | None:
        """Records after the group's offset."""
        return None if self.committed is None else max(self.end - self.committed, 0)


@app.command("list")
def list_groups(bootstrap_servers: Bootstrap, as_json: AsJson = False) -> None:
    """List all groups with their state."""
    with _admin(bootstrap_servers) as admin:
        groups = sorted(admin.list_groups(), key=lambda group: group.group_id)
    if as_json:
        rows = [
            {
                "group": g.group_id,
                "type": g.type,
                "state": g.state,
                "protocol_type": g.protocol_type,
            }
            for g in groups
        ]
        typer.echo(json.dumps({"groups": rows}))
        return
    table = Table("GROUP", "TYPE", "STATE", "PROTOCOL-TYPE", box=None, pad_edge=False)
    for group in groups:
        shown = (group.type, group.state, group.protocol_type)
        table.add_row(group.group_id, *(text or _NONE for text in shown))
    _console().print(table if groups else "no groups")


@app.command()
def describe(
    group: str,
    bootstrap_servers: Bootstrap,
    members: Annotated[
        bool, typer.Option("--members", help="Members with what they have, and are to have.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a group's state, its offsets and its lag."""
    with _admin(bootstrap_servers) as admin:
        described = admin.describe_groups([group])[group]
        positions = _positions(admin, described) if as_json or not members else []
    if as_json:
        typer.echo(json.dumps(_as_dict(described, positions)))
        return
    console = _console()
    console.print(_headline(described), highlight=False)
    console.print(_members_table(described) if members else _table(positions))


def _headline(described: GroupDescription) -> str:
    parts = {
        "GROUP": described.group_id,
        "TYPE": described.type,
        "STATE": described.state,
        "ASSIGNMENT-STRATEGY": described.assignor or _NONE,
        "GROUP-EPOCH": described.epoch,
        "TARGET-ASSIGNMENT-EPOCH": described.target_epoch,
        "#MEMBERS": len(described.members),
    }
    return "  ".join(f"{name} {value}" for name, value in parts.items() if value is not None)


def _admin(bootstrap_servers: str) -> AdminClient:
    from kohort.client import AdminClient

    return AdminClient(bootstrap_servers=bootstrap_servers, default_api_timeout_ms=_PATIENCE_MS)


def _positions(admin: AdminClient, described: GroupDescription) -> list[Position]:
    committed = admin.list_group_offsets(described.group_id)
    owners = {partition: member for member in described.members for partition in member.assignment}
    promised = (tp for member in described.members for tp in member.target_assignment or ())
    wanted = sorted({*committed, *owners, *promised})
    ends = admin.list_offsets(dict.fromkeys(wanted, LATEST)) if wanted else {}
    positions = []
    for partition in wanted:
        owner = owners.get(partition)
        offset = committed.get(partition)
        positions.append(
            Position(
                partition=partition,
                committed=offset.offset if offset else None,
                end=ends[partition] or 0,  # a partition always has an end
                member_id=owner.member_id if owner else "",
                host=owner.client_host if owner else "",
                client_id=owner.client_id if owner else "",
            )
        )
    return positions


def _table(positions: list[Position]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"):
        table.add_column(heading, justify="left" if heading == "TOPIC" else "right")
    for heading in ("CONSUMER-ID", "HOST", "CLIENT-ID"):
        table.add_column(heading)
    for position in positions:
        table.add_row(
            position.partition.topic,
            str(position.partition.partition),
            _number(position.committed),
            str(position.end),
            _number(position.lag),
            position.member_id or _NONE,
            position.host or _NONE,
            position.client_id or _NONE,
        )
    return table


def _members_table(described: GroupDescription) -> Table:
    table = Table(box=None, pad_edge=False)
    is_consumer = described.type == "consumer"
    for heading in ("CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"):
        table.add_column(heading, justify="right" if heading.startswith("#") else "left")
    for heading in ("CURRENT-EPOCH",) * is_consumer + ("CURRENT-ASSIGNMENT",):
        table.add_column(heading)
    for heading in ("TARGET-ASSIGNMENT", "TYPE") * is_consumer:
        table.add_column(heading)
    for member in described.members:
        row = [member.member_id, member.client_host, member.client_id, str(len(member.assignment))]
        row += [_number(member.epoch)] * is_consumer + [_listed(member.assignment)]
        if is_consumer:
            row += [_listed(member.target_assignment or ()), member.type]
        table.add_row(*row)
    return table


def _listed(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as Kafka's tools write them: `flights:0,1;weather:0`."""
    by_topic = _by_topic(partitions).items()
    return ";".join(f"{name}:{','.join(map(str, those))}" for name, those in by_topic) or _NONE


def _console() -> Console:
    """Return where tables go: whatever is not a terminal gets every column whole."""
    console = Console()
    return console if console.is_terminal else Console(width=500)


def _number(value: int | None) -> str:
    return _NONE if value is None else str(value)


def _as_dict(described: GroupDescription, positions: list[Position]) -> dict[str, object]:
    return {
        "group": described.group_id,
        "type": described.type,
        "state": described.state,
        "assignor": described.assignor,
        "epoch": described.epoch,
        "target_assignment_epoch": described.target_epoch,
        "members": [_member_as_dict(member) for member in described.members],
        "partitions": [
            {
                "topic": position.partition.topic,
                "partition": position.partition.partition,
                "current_offset": position.committed,
                "log_end_offset": position.end,
                "lag": position.lag,
                "consumer_id": position.member_id or None,
                "host": position.host or None,
                "client_id": position.client_id or None,
            }
            for position in positions
        ],
    }


def _member_as_dict(member: MemberDescription) -> dict[str, object]:
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
        "assignment": _by_topic(member.assignment),
        "target_assignment": None if target is None else _by_topic(target),
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found
