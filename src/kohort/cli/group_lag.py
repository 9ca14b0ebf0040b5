"""`kohort groups lag`: how far groups are behind, topic by topic and in total."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

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
    ended,
    fitted,
    print_changes,
    print_json,
    print_table,
    printable,
    refreshed,
    tell,
    until_interrupted,
)
from kohort.errors import KafkaError, KohortError, PartialFailureError

if TYPE_CHECKING:
    from kohort.client import AdminClient, GroupDescription

Rows: TypeAlias = list[tuple[object, ...]]

COLUMNS = ("GROUP", "STATE", "TOPIC", "#PARTITIONS", "LAG", "MAX-LAG", "UNKNOWN")
# Columns to drop, the least important first.
_DISPENSABLE = ("STATE", "#PARTITIONS")


class TopicLag(Struct, frozen=True, kw_only=True):
    """The lag of a group in one topic, or in all of them.

    Attributes:
        topic: The topic; None for all.
        partitions: Number of its partitions that the group has committed, owns or will own.
        lag: Records after the committed offsets, over all partitions where both are known.
        largest: The largest lag of a partition; None if none is known.
        unknown: Number of partitions left out of `lag`: without a committed offset, or without a
            leader that returns the end.
    """

    topic: str | None
    partitions: int
    lag: int
    largest: int | None
    unknown: int


class GroupLag(Struct, frozen=True):
    """The lag of a group.

    Attributes:
        group: The group.
        state: Its state.
        topics: Its topics, by name.
    """

    group: str
    state: str
    topics: tuple[TopicLag, ...]


Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[GROUP]...", help="Group ids; default: all groups."),
]


def lag(
    bootstrap_servers: Bootstrap,
    groups: Names = None,
    command_config: CommandConfig = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.1, help="Refresh interval.")
    ] = 1.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object; a line per change with --watch.")
    ] = False,
) -> None:
    """Show how many records groups have yet to read, by topic and in total.

    Exit code 1: some groups are missing or unknown, with the reason; the others are shown.

    Example: kohort groups lag delays -b localhost:9092 --watch
    """
    names = groups or []
    with admin_client(bootstrap_servers, command_config) as admin:
        if watch:
            _watch(admin, names, every, as_json=as_json)
            return
        lags = lags_of(admin, names)
    if as_json:
        print_json(as_dict(lags))
    elif lags.groups or not lags.failed:
        print_table(COLUMNS, table_of(lags.groups), _DISPENSABLE)
    for text in told(lags):
        tell(text)
    ended(1 if lags.failed else 0)


class Lags(Struct, frozen=True, kw_only=True):
    """The lags of several groups.

    Attributes:
        groups: The known groups.
        failed: Why other groups are not known, by group.
        unknown: Why the ends of some partitions are not known.
    """

    groups: list[GroupLag]
    failed: dict[str, KafkaError]
    unknown: list[KohortError]


def lags_of(admin: AdminClient, names: Sequence[str]) -> Lags:
    """Return the lags of the named groups, or of all groups.

    Raises:
        KohortError: The brokers do not answer.
    """
    # groups of Connect, for instance, have no offsets; groups that only commit have no type
    wanted = names or [
        each.group_id for each in admin.list_groups() if each.protocol_type in ("consumer", "")
    ]
    described, failed = _described(admin, wanted)
    found: list[GroupLag] = []
    unknown: list[KohortError] = []
    for name, group in described.items():
        positions, why = positions_of(admin, group)
        found.append(GroupLag(name, group.state, by_topic(positions)))
        unknown += [why] if why is not None else []
    return Lags(groups=found, failed=failed, unknown=unknown)


def _described(
    admin: AdminClient, names: Sequence[str]
) -> tuple[dict[str, GroupDescription], dict[str, KafkaError]]:
    """Return groups ordered by name, and why some could not be described."""
    if not names:
        return {}, {}
    try:
        return admin.describe_groups(names), {}
    except PartialFailureError as error:
        found = cast("dict[str, GroupDescription]", error.results)
        return found, {str(name): why for name, why in error.errors.items()}


def told(lags: Lags) -> list[str]:
    """Return readable lines about failed lookups."""
    failed = [f"the lag of {name} is not known: {why}" for name, why in lags.failed.items()]
    return failed + [f"the ends of some partitions are not known: {each}" for each in lags.unknown]


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


def as_dict(lags: Lags) -> dict[str, object]:
    """Return lags for JSON, with the totals of each group and of all."""
    total = total_of(each for group in lags.groups for each in group.topics)
    failed = {name: str(why) for name, why in lags.failed.items()}
    return {**_numbers(total), "groups": [_group(each) for each in lags.groups], "failed": failed}


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

    async def seen() -> dict[str, object]:
        return as_dict(await asyncio.to_thread(lags_of, admin, names))

    until_interrupted(print_changes(seen, every_s))


def _view(admin: AdminClient, names: Sequence[str]) -> RenderableType:
    """Return the output of `--watch`; an unavailable broker does not end it."""
    at = time.strftime("%H:%M:%S")
    try:
        lags = lags_of(admin, names)
    except KohortError as error:
        return Text(f"{at}  {printable(error)}")
    made, _ = fitted(console(), COLUMNS, table_of(lags.groups), _DISPENSABLE)
    return Group(Text(at), made, *(Text(printable(each)) for each in told(lags)))
