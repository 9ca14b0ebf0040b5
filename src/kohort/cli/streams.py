"""`kohort streams`: show a stream application, ask a member to leave, or reset it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kohort.cli.command_config import CommandConfig
from kohort.cli.region import client_settings
from kohort.cli.shared import (
    NONE,
    AsJson,
    Bootstrap,
    console,
    print_changes,
    printable,
    refreshed,
    until_interrupted,
)
from kohort.errors import KohortError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kohort.region.settings import ClientSettings
    from kohort.streams.assignment.tasks import Task
    from kohort.streams.inspecting import ApplicationStatus, MemberStatus
    from kohort.streams.log.records import AnyTaskRecord
    from kohort.streams.resetting import Reset
    from kohort.types import TopicPartition

app = typer.Typer(
    help="Show stream applications and move their tasks. Experimental.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="APP", help="Application name.")]
_EVERY_S = 1.0


@app.command()
def status(
    application: Name,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again whenever it changes, until Ctrl-C.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object; a line per change with --watch.")
    ] = False,
) -> None:
    """Show the members and their tasks: processed, learned and followed; and the state of all.

    Lags are those of the last rebalance. Exit code 0: all tasks are where they belong; 3: some are
    about to move; 4: no member runs, tasks have failed, or a member cannot learn
    what it was to learn.
    """
    from kohort.streams.inspecting import look

    settings = client_settings(bootstrap_servers, command_config)
    if watch:
        _watch(application, settings, as_json=as_json)
        return
    found = asyncio.run(look(application, settings))
    if as_json:
        typer.echo(json.dumps(as_dict(found)))
    else:
        console().print(shown(found))
    sys.exit(_exit_code(found))


def _watch(application: str, settings: ClientSettings, *, as_json: bool) -> None:
    """Show it until interrupted; an unavailable broker does not end it."""
    from kohort.streams.inspecting import look

    async def seen() -> dict[str, object]:
        return as_dict(await look(application, settings))

    async def view() -> RenderableType:
        try:
            return shown(await look(application, settings))
        except KohortError as error:
            return Text(printable(error))

    shows = print_changes(seen, _EVERY_S) if as_json else refreshed(view, _EVERY_S)
    until_interrupted(shows)


@app.command()
def leave(
    application: Name,
    member: Annotated[
        str,
        typer.Option(
            "--member",
            "--instance",
            help="Member id, or a unique client id or static id (group.instance.id).",
        ),
    ],
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds to wait until it has left; 0: do not wait.")
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Have others learn a member's tasks; it leaves once it has handed all of them over."""
    from kohort.streams.inspecting import ask_to_leave

    settings = client_settings(bootstrap_servers, command_config)
    found = asyncio.run(ask_to_leave(application, member, settings, timeout))
    done = timeout > 0
    if as_json:
        typer.echo(json.dumps({"application": application, "member": found, "has_left": done}))
    else:
        what = "has left" if done else "was asked to leave"
        typer.echo(f"application {application}: member {found} {what}")


@app.command()
def reset(
    application: Name,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Delete; without this, only show.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let an application start over: delete its offsets, changelogs and other internal topics.

    It will read its input again from the start; its output stays. Stop all instances first.
    Exit code 0: it is reset; 1: it is not, with the reason; 3: only shown.
    """
    from kohort.streams.resetting import reset as reset_application

    settings = client_settings(bootstrap_servers, command_config)
    found = asyncio.run(reset_application(application, settings, execute=execute))
    if as_json:
        typer.echo(json.dumps(_reset_as_dict(found)))
    else:
        typer.echo(_reset_as_text(found))
    sys.exit(0 if execute else 3)


def _reset_as_dict(found: Reset) -> dict[str, object]:
    return {
        "application": found.application,
        "topics": list(found.topics),
        "offsets": [f"{topic}-{number}" for topic, number in found.offsets],
        "foreign": list(found.foreign),
        "is_done": found.is_done,
    }


def _reset_as_text(found: Reset) -> str:
    name, count = found.application, len(found.offsets)
    done = "was deleted" if found.is_done else "would be deleted"
    lines = [f"topic {topic} {done}" for topic in found.topics]
    lines.append(f"group {name} with committed offsets of {count} partitions {done}")
    lines += [f"topic {topic} stays: it belongs to another application" for topic in found.foreign]
    lines.append(
        f"On each machine, delete STATE_DIR/{name}. An instance that finds state from before a"
        " reset drops it with a warning, so nothing wrong comes of one that is forgotten."
    )
    if not found.is_done:
        lines.append("Nothing was deleted. To delete, run the same command with --execute")
    return "\n".join(lines)


def _exit_code(found: ApplicationStatus) -> int:
    if not found.members or found.failed or any(each.unable for each in found.members):
        return 4
    return 3 if found.is_moving else 0


def as_dict(found: ApplicationStatus) -> dict[str, object]:
    """Return an application for JSON."""
    return {
        "application": found.name,
        "state": found.state,
        "is_moving": found.is_moving,
        "members": [_member(each) for each in found.members],
        "tasks": [_task(task, record) for task, record in sorted(found.tasks.items())],
        "failed": [str(task) for task in found.failed],
    }


def _member(member: MemberStatus) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "host": member.host,
        "active": [f"{topic}-{number}" for topic, number in sorted(member.active)],
        "processing": [str(task) for task in sorted(member.processing)],
        "learning": {str(task): lag for task, lag in sorted(member.learning.items())},
        "standbys": {str(task): lag for task, lag in sorted(member.standbys.items())},
        "being_learned": [str(task) for task in sorted(member.being_learned)],
        "is_leaving": member.is_leaving,
        "unable": [str(task) for task in sorted(member.unable)],
        "trouble": member.trouble,
    }


def _task(task: Task, record: AnyTaskRecord) -> dict[str, object]:
    return {
        "task": str(task),
        "what": type(record).__name__.lower(),
        "member": record.member,
        "generation": record.generation,
        "at": record.at,
        "unavailable_ms": getattr(record, "unavailable_ms", None),
        "after": getattr(record, "after", None) or None,
        "error": getattr(record, "error", None),
    }


def shown(found: ApplicationStatus) -> Group:
    """Return an application as tables."""
    members = Table("MEMBER", "CLIENT-ID", "ACTIVE", "LEARNING", "STANDBYS", "LEAVING", box=None)
    for each in found.members:
        members.add_row(
            each.member_id,
            each.client_id,
            _active(each),
            _lags(each.learning),
            _lags(each.standbys),
            "yes" if each.is_leaving else NONE,
        )
    tasks = Table("TASK", "LAST", "MEMBER", "UNAVAILABLE-MS", "ERROR", box=None)
    for task, record in sorted(found.tasks.items()):
        row = _task(task, record)
        cells = (row["what"], row["member"], _unavailable(found, record), row["error"])
        tasks.add_row(str(task), *(NONE if each is None else str(each) for each in cells))
    head = f"APPLICATION {found.name}  STATE {found.state}  #MEMBERS {len(found.members)}"
    return Group(head, members if found.members else "no members", tasks, *_unable(found.members))


def _unable(members: Iterable[MemberStatus]) -> list[Text]:
    """Return one line for each member about tasks that it cannot learn."""
    return [
        Text(
            f"member {each.member_id} cannot learn or follow {_listed(map(str, tasks))} until it"
            f" restarts: {each.trouble}"
        )
        for each in members
        if (tasks := sorted(each.unable))
    ]


def _unavailable(found: ApplicationStatus, record: AnyTaskRecord) -> str | None:
    """Return the time for which a task was not processed; its start, if the owner crashed."""
    row = _task(record.task, record)
    ms, after = row["unavailable_ms"], row["after"]
    if row["what"] == "started" and record.member not in {m.member_id for m in found.members}:
        return f"since the end of {record.member}"
    if ms is None and after is not None:
        return f"from the end of {after} to {_clock(record.at)}"
    return None if ms is None else str(ms)


def _clock(at_ms: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_ms / 1000))


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(texts) or NONE


def _active(member: MemberStatus) -> str:
    """Return a member's tasks: during a rebalance, as it last reported them."""
    if member.active or not member.processing:
        return _inputs(member.active)
    return f"tasks {_listed(map(str, sorted(member.processing)))}"


def _inputs(partitions: Iterable[TopicPartition]) -> str:
    """Return the partitions by topic, consecutive ones as a range."""
    numbers: dict[str, list[list[int]]] = {}
    for topic, number in sorted(partitions):
        runs = numbers.setdefault(topic, [])
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return "\n".join(f"{topic} {_shown(runs)}" for topic, runs in numbers.items()) or NONE


def _shown(runs: Iterable[Sequence[int]]) -> str:
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _lags(lags: Mapping[Task, int | None]) -> str:
    texts = (f"{task} ({'?' if lag is None else lag})" for task, lag in sorted(lags.items()))
    return _listed(texts)
