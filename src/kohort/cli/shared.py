"""What commands share: options, tables, JSON, and views that are shown again and again."""

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
# A person waits for the answer, so not for the minute that a program may.
PATIENCE_MS = 10_000
# Wider than any table.
_ENOUGH = 2**20
# Exit code of a command that only shows what it would do.
ONLY_SHOWN = 3


def client_settings(
    bootstrap_servers: str,
    command_config: Path | None,
    given: Mapping[str, object],
    more: Iterable[str],
) -> dict[str, object]:
    """Return the settings of a command's client, by Kafka's names.

    Args:
        bootstrap_servers: Where the brokers are.
        command_config: A file of settings.
        given: Those of options, which win over the file; None is not given.
        more: Those of `-X`, which win over both.
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
    """Return the client of a command."""
    from kohort.client import AdminClient

    return AdminClient.from_config(client_settings(bootstrap_servers, command_config, {}, ()))


def fitting(make: Callable[[], T]) -> T:
    """Make a client; settings that it does not take are options that do not fit.

    Raises:
        typer.BadParameter: A setting is not known, or has a value that makes no sense.
    """
    try:
        return make()
    except ConfigError as error:
        raise wrong_usage(str(error)) from None


def wrong_usage(text: str) -> typer.BadParameter:
    """Return the error of options that do not fit; the exit code is 2."""
    return typer.BadParameter(text)


def tell(text: str) -> None:
    """Print a line for a person on standard error."""
    typer.echo(f"kohort: {text}", err=True)


def print_json(value: Mapping[str, object]) -> None:
    """Print one JSON object."""
    typer.echo(json.dumps(value))


def console() -> Console:
    """Return where tables go: whatever is not a terminal gets every column whole."""
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
    """Return a table that fits into the terminal, and the columns that were left out for it.

    If it does not fit even so, each row is shown as lines, with all its columns.

    Args:
        to: Where it is to be shown.
        columns: The names of all columns.
        rows: Their values.
        dispensable: Columns that may be left out, first the one that is missed least.
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
    """Print a table as wide as the terminal has room for, and say what it leaves out."""
    to = console()
    made, left_out = fitted(to, columns, rows, dispensable)
    to.print(made)
    if left_out:
        to.print(Text(f"Left out: {', '.join(left_out)}. All of it: | cat, or --json", "dim"))


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
    """Make a call for several things; return the error of each for which it failed."""
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
    """Show something again and again, in place; what is no terminal gets it when it differs.

    Args:
        look: Returns what to show.
        every_s: Seconds between two looks.
        marks: Returns the part of the last look that counts as a difference; None: all that is
            shown.
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
    """Print one JSON object a line, whenever something differs; an error is one, too.

    Raises:
        KohortError: One that waiting does not mend, such as a wrong password.
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
    """Run something until it ends, or Ctrl-C, SIGTERM or a closed pipe ends it: no error."""

    async def run() -> None:
        task = asyncio.ensure_future(work)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await task

    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        try:
            asyncio.run(run())
        except BrokenPipeError:  # the reader has seen enough
            silence_out()


def ended(code: int) -> None:
    """End the command with an exit code; 0 goes on."""
    if code:
        sys.exit(code)
