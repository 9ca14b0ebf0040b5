"""`kohort groups lag`: how far groups are behind, topic by topic and in total."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.text import Text

from kohort.cli.command_config import CommandConfig
from kohort.cli.group_views import Position, positions_of
from kohort.cli.shared import (
    Bootstrap,
    admin_client,
    console,
    fitted,
    print_json,
    print_table,
    printable,
    refreshed,
    tell,
    until_interrupted,
)
from kohort.errors import KohortError
from kohort.output import silence_out

if TYPE_CHECKING:
    from kohort.client import AdminClient

Rows: TypeAlias = list[tuple[object, ...]]

COLUMNS = ("GROUP", "STATE", "TOPIC", "#PARTITIONS", "LAG", "MAX-LAG", "UNKNOWN")
# First what is missed least.
_DISPENSABLE = ("STATE", "#PARTITIONS")


class TopicLag(Struct, frozen=True, kw_only=True):
    """How far a group is behind in one topic, or in all of them.

    Attributes:
        topic: The topic; None for all.
        partitions: How many partitions of it the group has committed, owns or is to own.
        lag: Records after the committed offsets, over all partitions where both are known.
        largest: The lag of the partition that is furthest behind; None when none is known.
        unknown: How many partitions are left out of `lag`: nothing is committed, or no leader tells
            the end.
    """

    topic: str | None
    partitions: int
    lag: int
    largest: int | None
    unknown: int


class GroupLag(Struct, frozen=True):
    """How far a group is behind.

    Attributes:
        group: The group.
        state: Its state.
        topics: What it reads, by name.
    """

    group: str
    state: str
    topics: tuple[TopicLag, ...]


Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[GROUP]...", help="Ids of groups; all groups without one."),
]


def lag(
    bootstrap_servers: Bootstrap,
    groups: Names = None,
    command_config: CommandConfig = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Again and again, until Ctrl-C.")
    ] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.1, help="How often to look.")
    ] = 1.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object; a line per change with --watch.")
    ] = False,
) -> None:
    """Show how many records groups have still to read, by topic and in total.

    Example: kohort groups lag delays -b localhost:9092 --watch
    """
    names = groups or []
    with admin_client(bootstrap_servers, command_config) as admin:
        if watch:
            _watch(admin, names, every, as_json=as_json)
            return
        found, unknown = lags_of(admin, names)
    for each in unknown:
        tell(f"the ends of some partitions are not known: {each}")
    if as_json:
        print_json(as_dict(found))
    else:
        print_table(COLUMNS, table_of(found), _DISPENSABLE)


def lags_of(admin: AdminClient, names: Sequence[str]) -> tuple[list[GroupLag], list[KohortError]]:
    """Return the lags of groups, of all without names, and why some are not known.

    Raises:
        KohortError: A group is not there, or the brokers do not answer.
    """
    # those of Connect, for instance, have no offsets; what only commits has no type
    wanted = names or [
        each.group_id for each in admin.list_groups() if each.protocol_type in ("consumer", "")
    ]
    described = admin.describe_groups(wanted) if wanted else {}
    found: list[GroupLag] = []
    unknown: list[KohortError] = []
    for name in wanted:
        positions, why = positions_of(admin, described[name])
        found.append(GroupLag(name, described[name].state, by_topic(positions)))
        unknown += [why] if why is not None else []
    return found, unknown


def by_topic(positions: Sequence[Position]) -> tuple[TopicLag, ...]:
    """Return the lag in each topic, in order."""
    topics: dict[str, list[int | None]] = {}
    for each in positions:
        topics.setdefault(each.partition.topic, []).append(each.lag)
    return tuple(
        TopicLag(
            topic=topic,
            partitions=len(lags),
            lag=sum(known := [each for each in lags if each is not None]),
            largest=max(known, default=None),
            unknown=len(lags) - len(known),
        )
        for topic, lags in sorted(topics.items())
    )


def total_of(lags: Iterable[TopicLag]) -> TopicLag:
    """Return the lag in several topics together."""
    every = list(lags)
    return TopicLag(
        topic=None,
        partitions=sum(each.partitions for each in every),
        lag=sum(each.lag for each in every),
        largest=max((each.largest for each in every if each.largest is not None), default=None),
        unknown=sum(each.unknown for each in every),
    )


def table_of(groups: Sequence[GroupLag]) -> Rows:
    """Return a row for each topic of each group, and the total."""
    rows = [
        (group.group, group.state, each)
        for group in groups
        for each in group.topics or [total_of([])]
    ]
    total = total_of(each for group in groups for each in group.topics)
    return [
        (name, state, each.topic, each.partitions, each.lag, each.largest, each.unknown)
        for name, state, each in [*rows, ("TOTAL", None, total)]
    ]


def as_dict(groups: Sequence[GroupLag]) -> dict[str, object]:
    """Return lags as JSON has them, with the totals of each group and of all."""
    total = total_of(each for group in groups for each in group.topics)
    return {**_numbers(total), "groups": [_group(each) for each in groups]}


def _group(group: GroupLag) -> dict[str, object]:
    topics = [{"topic": each.topic, **_numbers(each)} for each in group.topics]
    total = _numbers(total_of(group.topics))
    return {"group": group.group, "state": group.state, **total, "topics": topics}


def _numbers(lag: TopicLag) -> dict[str, int | None]:
    return {
        "partitions": lag.partitions,
        "lag": lag.lag,
        "max_lag": lag.largest,
        "unknown": lag.unknown,
    }


def _watch(admin: AdminClient, names: Sequence[str], every_s: float, *, as_json: bool) -> None:
    if not as_json:

        async def look() -> RenderableType:
            return await asyncio.to_thread(_view, admin, names)

        until_interrupted(refreshed(look, every_s))
        return
    try:
        until_interrupted(_print_changes(admin, names, every_s))
    except BrokenPipeError:  # the reader has seen enough
        silence_out()


def _view(admin: AdminClient, names: Sequence[str]) -> RenderableType:
    """Return what `--watch` shows; a broker that is away is no reason to end."""
    at = time.strftime("%H:%M:%S")
    try:
        found, unknown = lags_of(admin, names)
    except KohortError as error:
        return Text(f"{at}  {printable(error)}")
    made, _ = fitted(console(), COLUMNS, table_of(found), _DISPENSABLE)
    return Group(Text(at), made, *(Text(printable(each)) for each in unknown))


async def _print_changes(admin: AdminClient, names: Sequence[str], every_s: float) -> None:
    last: dict[str, object] | None = None
    while True:
        try:
            found, _ = await asyncio.to_thread(lags_of, admin, names)
            seen = as_dict(found)
        except KohortError as error:
            seen = {"error": str(error)}
        if seen != last:
            print(json.dumps({"at": time.time(), **seen}), flush=True)
        last = seen
        await asyncio.sleep(every_s)
