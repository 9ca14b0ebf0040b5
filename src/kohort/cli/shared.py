"""Shared parts of commands: options, tables, JSON, and views that refresh."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from kohort.cli.command_config import read_command_config
from kohort.errors import ConfigError, KafkaError, KohortError, PartialFailureError
from kohort.output import silence_out
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.client import AdminClient

T = TypeVar("T")

Bootstrap: TypeAlias = Annotated[
    str,
    typer.Option("--bootstrap-servers", "--bootstrap-server", "-b", metavar="HOST:PORT"),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON object.")]
NONE = "-"
# Shorter than a program's minute, because a person waits for the answer.
PATIENCE_MS = 10_000
# Wider than any table.
_ENOUGH = 2**20
# Exit code of a command that only previews its changes.
ONLY_SHOWN = 3


def client_settings(
    bootstrap_servers: str,
    command_config: Path | None,
    given: Mapping[str, object],
    more: Iterable[str],
) -> dict[str, object]:
    """Return the settings of a command's client, by Kafka's names.

    Args:
        bootstrap_servers: The brokers' addresses.
        command_config: A file of settings.
        given: Settings from options, which override the file; None if not given.
        more: Settings from `-X`, which override both.
    """
    pairs = [text.partition("=") for text in more]
    for name, found, value in pairs:
        if not found:
            raise wrong_usage(f"-X {name}{value}: must be NAME=VALUE")
    return {
        "default.api.timeout.ms": PATIENCE_MS,
        **read_command_config(command_config),
        **{name: value for name, value in given.items() if value is not None},
        **{name: value for name, _, value in pairs},
        "bootstrap.servers": bootstrap_servers,
    }


def admin_client(bootstrap_servers: str, command_config: Path | None) -> AdminClient:
    """Return the client of a command; see `fitting` for settings that it does not accept."""
    from kohort.client import AdminClient

    settings = client_settings(bootstrap_servers, command_config, {}, ())
    return fitting(lambda: AdminClient.from_config(settings))


def fitting(make: Callable[[], T]) -> T:
    """Create a client; report settings that it does not accept as wrong options.

    Raises:
        typer.BadParameter: A setting is unknown or has an invalid value.
    """
    try:
        return make()
    except ConfigError as error:
        raise wrong_usage(str(error)) from None


def wrong_usage(text: str) -> typer.BadParameter:
    """Return the error for wrong options; the exit code is 2."""
    return typer.BadParameter(text)


def tell(text: str) -> None:
    """Print a message on standard error."""
    typer.echo(f"kohort: {text}", err=True)


def print_json(value: Mapping[str, object]) -> None:
    """Print one JSON object."""
    typer.echo(json.dumps(value))


def console() -> Console:
    """Return the console for tables: output that is not a terminal gets every column in full."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(width=_ENOUGH, highlight=False)


def printable(value: object) -> str:
    """Return a value for a terminal: None as `-`, control characters as escapes."""
    if value is None or value == "":
        return NONE
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in str(value))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Return a table; numbers are aligned to the right."""
    made = Table(box=None, pad_edge=False)
    for number, name in enumerate(columns):
        cells = [row[number] for row in rows if row[number] is not None]
        is_number = bool(cells) and all(isinstance(each, int) for each in cells)
        made.add_column(Text(name), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    return made


def fitted(
    to: Console,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    dispensable: Sequence[str],
) -> tuple[Table, tuple[str, ...]]:
    """Return a table that fits the terminal, and the columns left out.

    If it still does not fit, each row is shown as lines, with all its columns.

    Args:
        to: The console that shows it.
        columns: The names of all columns.
        rows: Their values.
        dispensable: Columns that may be left out, the least important first.
    """
    candidates = [name for name in dispensable if name in columns]
    for count in range(len(candidates) + 1):
        left_out = candidates[:count]
        kept = [number for number, name in enumerate(columns) if name not in left_out]
        made = table(
            [columns[each] for each in kept], [[row[each] for each in kept] for row in rows]
        )
        if Measurement.get(to, to.options.update(width=10_000), made).maximum <= to.width:
            return made, tuple(left_out)
    return _stacked(columns, rows), ()


def _stacked(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Return rows as lines of name and value."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for number, row in enumerate(rows):
        if number:
            made.add_row("", "")
        for name, cell in zip(columns, row, strict=True):
            made.add_row(Text(name), Text(printable(cell)))
    return made


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], dispensable: Sequence[str] = ()
) -> None:
    """Print a table that fits the terminal, and list the columns it leaves out."""
    to = console()
    made, left_out = fitted(to, columns, rows, dispensable)
    to.print(made)
    if left_out:
        to.print(
            Text(f"Hidden columns: {', '.join(left_out)}. To see all: | cat, or --json", "dim")
        )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the numbers of partitions by topic."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


def listed(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as Kafka's tools write them: `flights:0,1;weather:0`."""
    found = by_topic(partitions).items()
    return ";".join(f"{name}:{','.join(map(str, those))}" for name, those in found) or NONE


def failures(call: Callable[[], object]) -> dict[object, KafkaError]:
    """Call a function for each item; return the errors by item."""
    try:
        call()
    except PartialFailureError as error:
        return error.errors
    return {}


async def refreshed(
    look: Callable[[], Awaitable[RenderableType]],
    every_s: float,
    marks: Callable[[], object] | None = None,
) -> None:
    """Show a view repeatedly, in place; outside a terminal, print it whenever it changes.

    Args:
        look: Returns the view.
        every_s: Seconds between two calls of `look`.
        marks: Returns the part of the last view that counts as a change; None: the whole view.
    """
    to = console()
    if not to.is_terminal:
        await _printed(to, look, every_s, marks)
        return
    with Live(auto_refresh=False) as live:
        while True:
            live.update(await look(), refresh=True)
            await asyncio.sleep(every_s)


async def _printed(
    to: Console,
    look: Callable[[], Awaitable[RenderableType]],
    every_s: float,
    marks: Callable[[], object] | None,
) -> None:
    last: object = None
    while True:
        with to.capture() as captured:
            to.print(await look())
        text = captured.get()
        found = text if marks is None else marks()
        if found != last:
            last = found
            print(text, flush=True)
        await asyncio.sleep(every_s)


async def print_changes(
    look: Callable[[], Awaitable[Mapping[str, object]]], every_s: float
) -> None:
    """Print one JSON object per line whenever it changes; errors are objects too.

    Raises:
        KohortError: A permanent error, such as a wrong password.
    """
    from kohort.client.net.backoff import needs_help

    last: Mapping[str, object] | None = None
    while True:
        try:
            seen = await look()
        except KohortError as error:
            if needs_help(error):
                raise
            seen = {"error": str(error)}
        if seen != last:
            print(json.dumps({"at": time.time(), **seen}), flush=True)
        last = seen
        await asyncio.sleep(every_s)


def until_interrupted(work: Coroutine[object, object, object]) -> None:
    """Run a function until it ends; Ctrl-C, SIGTERM or a closed pipe end it without an error."""

    async def run() -> None:
        task = asyncio.ensure_future(work)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await task

    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        try:
            asyncio.run(run())
        except BrokenPipeError:  # the reader has closed the pipe
            silence_out()


def ended(code: int) -> None:
    """End the command with an exit code; return if it is 0."""
    if code:
        sys.exit(code)
