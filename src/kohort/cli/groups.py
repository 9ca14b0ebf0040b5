"""`kohort groups`: show groups, with the column names of Kafka's own tools."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import RenderableType
from rich.text import Text

from kohort.cli.command_config import CommandConfig
from kohort.cli.group_changes import GroupName, delete, delete_offsets, remove_members
from kohort.cli.group_lag import lag
from kohort.cli.group_resets import reset_offsets
from kohort.cli.group_views import (
    DISPENSABLE,
    DISPENSABLE_OF_OFFSETS,
    as_dict,
    headline,
    members_as_dict,
    members_table,
    offsets_table,
    positions_of,
    state_as_dict,
    state_table,
)
from kohort.cli.group_watch import Changes, seen, view
from kohort.cli.shared import (
    AsJson,
    Bootstrap,
    admin_client,
    console,
    ended,
    print_changes,
    print_json,
    print_table,
    printable,
    refreshed,
    tell,
    until_interrupted,
    wrong_usage,
)
from kohort.errors import KafkaError, PartialFailureError

if TYPE_CHECKING:
    from kohort.client import AdminClient, GroupListing

app = typer.Typer(
    help="Show consumer groups, set their offsets, delete them.", no_args_is_help=True
)

Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show more columns.")]

_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning",
           "Reconciling", "NotReady")  # fmt: skip
_TYPES = ("classic", "consumer", "share", "streams")


@app.command("list")
def list_groups(
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    state: Annotated[
        str, typer.Option("--state", metavar="STATE,...", help="Only groups in these states.")
    ] = "",
    type_: Annotated[
        str, typer.Option("--type", metavar="TYPE,...", help="Only groups of these types.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """List groups with their type and state.

    Exit code 1: some brokers do not list their groups, with the reason.

    Example: kohort groups list -b localhost:9092 --state Stable,Empty --type consumer
    """
    states = _chosen(state, _STATES, "--state")
    types = _chosen(type_, _TYPES, "--type")
    with admin_client(bootstrap_servers, command_config) as admin:
        groups, failed = _listed(admin, states, types)
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
        print_json({"groups": rows})
    elif groups:
        shown = [(g.group_id, g.type, g.state, g.protocol_type) for g in groups]
        print_table(("GROUP", "TYPE", "STATE", "PROTOCOL-TYPE"), shown, ["PROTOCOL-TYPE"])
    elif not failed:
        typer.echo("no groups")
    for broker, why in failed.items():
        tell(f"the groups of broker {broker} are not listed: {why}")
    ended(1 if failed else 0)


def _listed(
    admin: AdminClient, states: Sequence[str], types: Sequence[str]
) -> tuple[list[GroupListing], dict[object, KafkaError]]:
    """Return the groups of the brokers that answer, and why the others do not."""
    try:
        return admin.list_groups(states, types), {}
    except PartialFailureError as error:
        listed = cast("dict[int, list[GroupListing]]", error.results)
        return sorted(chain.from_iterable(listed.values()), key=_by_id), error.errors


def _by_id(group: GroupListing) -> str:
    return group.group_id


def _chosen(given: str, known: Sequence[str], option: str) -> list[str]:
    """Return the names of a comma-separated list, in Kafka's spelling."""
    spelled = {name.lower(): name for name in known}
    names = [each.strip().lower() for each in given.split(",") if each.strip()]
    for name in names:
        if name not in spelled:
            raise wrong_usage(f"{option} {name}: must be one of {', '.join(known)}")
    return [spelled[name] for name in names]


@app.command()
def describe(
    group: GroupName,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Show a group's state, its offsets, its lag, and the owner of each partition.

    Example: kohort groups describe delays -b localhost:9092
    """
    with admin_client(bootstrap_servers, command_config) as admin:
        described = admin.describe_groups([group])[group]
        positions, unknown = positions_of(admin, described)
    if unknown is not None:
        tell(f"the ends of some partitions are not known: {unknown}")
    if as_json:
        print_json(as_dict(described, positions))
        return
    console().print(Text(printable(headline(described))))
    columns, rows = offsets_table(described, positions, verbose=verbose)
    if rows:
        print_table(columns, rows, DISPENSABLE_OF_OFFSETS)
    else:
        typer.echo("no committed offsets, and no member has a partition")


@app.command()
def members(
    group: GroupName,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Current and target partitions (KIP-848).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a group's members.

    Example: kohort groups members delays -b localhost:9092 --verbose
    """
    with admin_client(bootstrap_servers, command_config) as admin:
        described = admin.describe_groups([group])[group]
    if as_json:
        print_json(members_as_dict(described))
        return
    console().print(Text(printable(headline(described))))
    columns, rows = members_table(described, verbose=verbose)
    if rows:
        print_table(columns, rows, DISPENSABLE)
    else:
        typer.echo("no members")


@app.command()
def state(
    group: GroupName,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show a group's coordinator, type, assignor, state and epochs.

    Example: kohort groups state delays -b localhost:9092
    """
    with admin_client(bootstrap_servers, command_config) as admin:
        described = admin.describe_groups([group])[group]
    if as_json:
        print_json(state_as_dict(described))
    else:
        print_table(*state_table(described))


@app.command()
def watch(
    group: GroupName,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.1, help="Refresh interval.")
    ] = 1.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line, at each change.")
    ] = False,
) -> None:
    """Show a group repeatedly: its state and since when, and which members joined and left.

    Ends with exit code 0 on Ctrl-C or SIGTERM. Changes before it started are unknown.

    Example: kohort groups watch delays -b localhost:9092
    """
    changes = Changes()
    with admin_client(bootstrap_servers, command_config) as admin:
        if as_json:
            until_interrupted(print_changes(partial(seen, admin, group), every))
        else:

            async def look() -> RenderableType:
                return await asyncio.to_thread(view, admin, group, changes)

            until_interrupted(refreshed(look, every))


for command in (lag, reset_offsets, delete_offsets, delete, remove_members):
    app.command()(command)
