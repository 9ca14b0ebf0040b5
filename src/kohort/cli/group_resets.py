"""`kohort groups reset-offsets`: set a group's offsets, with all options of Kafka's own tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from msgspec import Struct

from kohort.cli.command_config import CommandConfig
from kohort.cli.group_changes import (
    Chosen,
    GroupName,
    Topics,
    chosen_topics,
    partitions_of,
    refuse_members,
)
from kohort.cli.reset_specs import as_csv, parse_duration, parse_time, read_offsets, shifted
from kohort.cli.shared import (
    ONLY_SHOWN,
    AsJson,
    Bootstrap,
    admin_client,
    ended,
    print_json,
    print_table,
    tell,
    wrong_usage,
)
from kohort.errors import ConfigError, KafkaError, PartialFailureError
from kohort.types import TopicPartition
from kohort.values import replace

if TYPE_CHECKING:
    from kohort.client import AdminClient, OffsetReset
    from kohort.client.admin.values import OffsetSpec

_TO = "New offsets (one of these)"
AllTopics = Annotated[
    bool, typer.Option("--all-topics", help="All topics for which the group has offsets.")
]
ToEarliest = Annotated[
    bool, typer.Option("--to-earliest", help="The beginning.", rich_help_panel=_TO)
]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="The end.", rich_help_panel=_TO)]
ToCurrent = Annotated[
    bool,
    typer.Option(
        "--to-current",
        help="The committed offset, within the partition's range; the end if there is none.",
        rich_help_panel=_TO,
    ),
]
ToOffset = Annotated[
    int | None, typer.Option("--to-offset", min=0, metavar="N", rich_help_panel=_TO)
]
ShiftBy = Annotated[
    int | None,
    typer.Option(
        "--shift-by", metavar="N", help="Move by N; -5 moves back by 5.", rich_help_panel=_TO
    ),
]
ToDatetime = Annotated[
    str | None,
    typer.Option(
        "--to-datetime",
        metavar="TIME",
        help="The first record at or after 2026-02-28T10:00:00 (UTC), or with +01:00.",
        rich_help_panel=_TO,
    ),
]
ByDuration = Annotated[
    str | None,
    typer.Option(
        "--by-duration",
        metavar="PnDTnHnMnS",
        help="This long before now: P7D, PT36H.",
        rich_help_panel=_TO,
    ),
]
FromFile = Annotated[
    Path | None,
    typer.Option(
        "--from-file",
        metavar="CSV",
        help="File with lines topic,partition,offset, as --export writes.",
        rich_help_panel=_TO,
    ),
]
Execute = Annotated[
    bool, typer.Option("--execute", help="Make the change; without this, only show it.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the change, with exit code 0.")]
Export = Annotated[
    bool, typer.Option("--export", help="Print the new offsets as CSV, for --from-file.")
]


class Scenario(Struct, frozen=True, kw_only=True):
    """The target of a reset: one of these is set."""

    earliest: bool = False
    latest: bool = False
    current: bool = False
    offset: int | None = None
    shift: int | None = None
    time: datetime | None = None
    file: Path | None = None


def reset_offsets(
    group: GroupName,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    topic: Topics = None,
    all_topics: AllTopics = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_current: ToCurrent = False,
    to_offset: ToOffset = None,
    shift_by: ShiftBy = None,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    from_file: FromFile = None,
    execute: Execute = False,
    dry_run: DryRun = False,
    export: Export = False,
    as_json: AsJson = False,
) -> None:
    """Set a group's committed offsets; it must have no members.

    An offset outside a partition becomes its first or its end offset, with a line on standard
    error. If one of the partitions does not exist, nothing is changed.

    Exit code 0: done, or shown with --dry-run or --export; 1: refused; 3: only shown.

    Example: kohort groups reset-offsets delays -b localhost:9092 --topic flights:0,1
    --to-datetime 2026-02-28T10:00:00 --execute
    """
    if execute and dry_run:
        raise wrong_usage("--execute and --dry-run contradict each other")
    if export and as_json:
        raise wrong_usage("--export and --json contradict each other: one prints CSV")
    scenario = Scenario(
        earliest=to_earliest,
        latest=to_latest,
        current=to_current,
        offset=to_offset,
        shift=shift_by,
        time=_time(to_datetime, by_duration),
        file=from_file,
    )
    named_topics = _checked(scenario, topic, all_topics)
    with admin_client(bootstrap_servers, command_config) as admin:
        refuse_members(admin, group, execute=execute)
        committed = {at: each.offset for at, each in admin.list_group_offsets(group).items()}
        specs = _specs(admin, group, scenario, named_topics, committed)
        found, failed = _reset(admin, group, specs, validate_only=True)
        is_done = execute and not failed
        if is_done:  # the offsets found above: an end may have moved since
            offsets = {at: each.offset for at, each in found.items()}
            done, failed = _reset(admin, group, offsets, validate_only=False)
            found = {at: found[at] for at in done}
    _show(group, found, committed, is_done=is_done, export=export, as_json=as_json)
    for why in failed:
        tell(f"{'was not' if is_done else 'cannot be'} reset: {why}")
    if not is_done and not as_json:
        how = ": leave out what cannot be reset" if failed else "; to apply it, add --execute"
        tell(f"nothing was changed{how}")
    ended(1 if failed else 0 if execute or dry_run or export else ONLY_SHOWN)


def _reset(
    admin: AdminClient,
    group: str,
    specs: Mapping[TopicPartition, OffsetSpec],
    *,
    validate_only: bool,
) -> tuple[dict[TopicPartition, OffsetReset], list[KafkaError]]:
    """Set offsets; return those that were set, and why the others were not."""
    below = {at: spec for at, spec in specs.items() if isinstance(spec, int) and spec < 0}
    possible = {**specs, **dict.fromkeys(below, 0)}
    errors: list[KafkaError] = []
    try:
        done = admin.reset_group_offsets(possible, group, validate_only=validate_only)
    except PartialFailureError as error:
        done = cast("dict[TopicPartition, OffsetReset]", error.results)
        errors = list(error.errors.values())
    return {at: _noted(each, below.get(at)) for at, each in done.items()}, errors


def _noted(reset: OffsetReset, below: int | None) -> OffsetReset:
    """Return a partition's new offset; warn of one below 0, which no broker accepts."""
    if below is None:
        return reset
    return replace(reset, note=f"offset {below} is before the first, {reset.offset}")


def _time(to_datetime: str | None, by_duration: str | None) -> datetime | None:
    if to_datetime is not None and by_duration is not None:
        raise wrong_usage("--to-datetime and --by-duration contradict each other")
    try:
        if by_duration is not None:
            return datetime.now(UTC) - parse_duration(by_duration)
        return None if to_datetime is None else parse_time(to_datetime)
    except OverflowError:
        raise wrong_usage(f"--by-duration {by_duration} is before the year 1") from None
    except ValueError as error:
        option = "--to-datetime" if by_duration is None else "--by-duration"
        raise wrong_usage(f"{option}: {error}") from None


def _checked(scenario: Scenario, topics: Sequence[str] | None, all_topics: bool) -> Chosen | None:
    """Return the named topics; None for all."""
    given = [each for each in _values(scenario) if each is not None and each is not False]
    if len(given) != 1:
        raise wrong_usage(
            "choose one of --to-earliest, --to-latest, --to-current, --to-offset,"
            " --shift-by, --to-datetime, --by-duration and --from-file"
        )
    if scenario.file is not None:
        if topics or all_topics:
            raise wrong_usage("--from-file names the partitions: leave out --topic, --all-topics")
        return None
    if bool(topics) == all_topics:
        raise wrong_usage("name the partitions: --topic TOPIC[:N,N] or --all-topics")
    return chosen_topics(topics) if topics else None


def _values(scenario: Scenario) -> list[object]:
    return [getattr(scenario, name) for name in scenario.__struct_fields__]


def _specs(
    admin: AdminClient,
    group: str,
    scenario: Scenario,
    topics: Chosen | None,
    committed: Mapping[TopicPartition, int],
) -> dict[TopicPartition, OffsetSpec]:
    """Return the reset target of each partition."""
    if scenario.file is not None:
        return dict(read_offsets(scenario.file, group))
    wanted = list(committed) if topics is None else partitions_of(admin, topics)
    if not wanted:
        raise ConfigError(f"group {group} has no committed offsets: name topics with --topic")
    if scenario.shift is not None:
        return dict(shifted(wanted, committed, scenario.shift))
    if scenario.current:
        return {each: committed.get(each, "latest") for each in wanted}
    spec: OffsetSpec = "earliest" if scenario.earliest else "latest"
    if scenario.offset is not None:
        spec = scenario.offset
    elif scenario.time is not None:
        spec = scenario.time
    return dict.fromkeys(wanted, spec)


def _show(
    group: str,
    found: Mapping[TopicPartition, OffsetReset],
    committed: Mapping[TopicPartition, int],
    *,
    is_done: bool,
    export: bool,
    as_json: bool,
) -> None:
    rows = [(group, *at, each.offset, committed.get(at)) for at, each in found.items()]
    if as_json:
        names = ("topic", "partition", "new_offset", "old_offset")
        partitions = [dict(zip(names, row[1:], strict=True)) for row in rows]
        for partition, each in zip(partitions, found.values(), strict=True):
            partition["note"] = each.note
        print_json({"group": group, "is_done": is_done, "partitions": partitions})
        return
    if export:
        typer.echo(as_csv({at: each.offset for at, each in found.items()}), nl=False)
    else:
        print_table(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET", "OLD-OFFSET"), rows, ["GROUP"])
    for (topic, number), each in found.items():
        if each.note:
            tell(f"{topic}-{number}: {each.note}")
