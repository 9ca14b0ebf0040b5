"""`kohort region`: show a consistent region, control it, or run a controller for it."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from kohort.cli.command_config import CommandConfig, read_command_config
from kohort.cli.region_views import (
    as_dict,
    exit_code,
    last_of,
    marks,
    partitions_of,
    seen,
    shown_sight,
)
from kohort.cli.shared import (
    NONE,
    PATIENCE_MS,
    AsJson,
    Bootstrap,
    console,
    refreshed,
    until_interrupted,
)
from kohort.client.config.security import without_aliases
from kohort.errors import KohortError

if TYPE_CHECKING:
    from rich.console import Group

    from kohort.region.candidate import Candidate
    from kohort.region.inspecting import Sight
    from kohort.region.machines.state import RegionState
    from kohort.region.settings import ClientSettings
    from kohort.region.sinks.sink import Publisher

app = typer.Typer(help="Show and control consistent regions.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="REGION", help="Region name.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait for completion.")]
Why = Annotated[str, typer.Option("--why", help="Reason, for the region's history.")]
Milliseconds = Annotated[int | None, typer.Option(min=1, max=2**31 - 1, metavar="MS")]
_MODES = ("periodic", "operator-driven")
_EVERY_S = 0.5


@app.command()
def status(
    region: Name,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Show it again at each change other than times and lag."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the phase, the last checkpoint, the operators, and those the region waits for.

    Operators that are not in the group any more are shown as gone; members of the group that are no
    operators are named with client id and host. So are topics that do not exist, and how many
    forced resets there were in the last hour.

    Exit code 0: it is processing; 3: it waits for an operator, or more than 5 complete
    checkpoints
    are not visible; 4: it gave up or nothing runs.
    """
    settings = client_settings(bootstrap_servers, command_config)
    if watch:
        until_interrupted(_watch(region, settings))
        return
    sight = asyncio.run(_look(region, settings))
    if as_json:
        typer.echo(json.dumps(seen(region, sight)))
    else:
        console().print(shown_sight(region, sight))
    sys.exit(exit_code(sight))


async def _look(region: str, settings: ClientSettings) -> Sight:
    from kohort.region.inspecting import sights

    async with sights(region, settings) as look:
        return await look()


async def _watch(region: str, settings: ClientSettings) -> None:
    from kohort.region.inspecting import sights

    last: dict[str, object] = {}
    async with sights(region, settings) as look:

        async def look_again() -> Group:
            sight = await look()
            last.update(marks(region, sight))
            return shown_sight(region, sight)

        await refreshed(look_again, _EVERY_S, last.copy)


@app.command()
def drain(
    region: Name,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    why: Why = "",
    timeout: Timeout = 60.0,
    as_json: AsJson = False,
) -> None:
    """Make a checkpoint now, and wait until it is complete and its output visible."""
    state = _ask(region, "drain", bootstrap_servers, command_config, why, timeout)
    _tell(as_json, region, state, f"checkpoint {state.completed} is complete and visible")


@app.command()
def reset(
    region: Name,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Reset even a region that stopped after too many resets."),
    ] = False,
    why: Why = "",
    timeout: Timeout = 60.0,
    as_json: AsJson = False,
) -> None:
    """Reset to the last complete checkpoint, and wait until every operator has done so."""
    state = _ask(region, "reset", bootstrap_servers, command_config, why, timeout, force=force)
    done = f"attempt {state.attempt} continues from checkpoint {state.completed}"
    _tell(as_json, region, state, done)


@app.command()
def stop(
    region: Name,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    why: Why = "",
    timeout: Timeout = 60.0,
    as_json: AsJson = False,
) -> None:
    """Stop all operators after a final checkpoint, and wait until it is visible.

    If it does not become visible within the region's drain timeout, the output says so.
    """
    state = _ask(region, "stop", bootstrap_servers, command_config, why, timeout)
    _tell(as_json, region, state, f"all operators have left; {last_of(state)}")


@app.command()
def checkpoints(
    region: Name,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show the positions and states of the last complete checkpoint."""
    from kohort.region.inspecting import look

    state = asyncio.run(look(region, client_settings(bootstrap_servers, command_config)))
    if as_json:
        typer.echo(json.dumps({"completed": state.completed, "partitions": partitions_of(state)}))
        return
    table = Table("TOPIC", "PARTITION", "OFFSET", "START", "STATE-BYTES", "OWNER", box=None)
    for each in partitions_of(state):
        shown_values = (each["offset"], each["start"], each["state_bytes"], each["owner"])
        texts = (NONE if value is None else str(value) for value in shown_values)
        table.add_row(str(each["topic"]), str(each["partition"]), *texts)
    out = console()
    out.print(f"CHECKPOINT {state.completed}")
    out.print(table if state.partitions else "no partitions")


@app.command()
def history(
    region: Name,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """List the events that the control topic still has."""
    from kohort.region.inspecting import history as read
    from kohort.region.machines.describing import told_record

    entries = asyncio.run(read(region, client_settings(bootstrap_servers, command_config)))
    for each in entries:
        if each.record is None:
            continue
        at = datetime.fromtimestamp(each.timestamp / 1000, UTC).isoformat(timespec="milliseconds")
        text = told_record(each.record)
        if as_json:
            typer.echo(json.dumps({"offset": each.offset, "at": at, "what": text}))
        else:
            typer.echo(f"{at}  {each.offset:>7}  {text}")


@app.command()
def start(
    region: Name,
    bootstrap_servers: Bootstrap,
    sink: Annotated[
        str,
        typer.Option(
            metavar="parquet:PATH|delta:TABLE", help="Where the operators' output becomes visible."
        ),
    ],
    command_config: CommandConfig = None,
    group_id: Annotated[
        str | None,
        typer.Option(help="Group of the operators; needed only to create a region."),
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="periodic, or operator-driven: checkpoints on demand.")
    ] = None,
    period_ms: Milliseconds = None,
    drain_timeout_ms: Milliseconds = None,
    reset_timeout_ms: Milliseconds = None,
    max_resets: Annotated[int | None, typer.Option(min=1)] = None,
    replication_factor: Annotated[
        int,
        typer.Option(help="Replication factor of a new control topic; -1: the broker's default."),
    ] = -1,
) -> None:
    """Run a controller candidate without an operator, until SIGTERM or Ctrl-C.

    It takes no partitions and is no member of the operators' group. It begins checkpoints and
    resets, evicts operators that are gone, and makes output visible, whenever the brokers choose
    it among all candidates; every operator carries one, too. A region that exists has its settings
    in its log: one that is given and differs is refused.
    """
    from kohort.region.candidate import Candidate

    given = {
        "group_id": group_id,
        "mode": mode,
        "period_ms": period_ms,
        "drain_timeout_ms": drain_timeout_ms,
        "reset_timeout_ms": reset_timeout_ms,
        "max_resets": max_resets,
    }
    wanted = {name: value for name, value in given.items() if value is not None}
    if mode is not None and mode not in _MODES:
        raise KohortError(f"--mode must be {' or '.join(_MODES)}, not {mode}")
    publisher, settings = _publisher(sink), client_settings(bootstrap_servers, command_config)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("kohort.region").setLevel(logging.INFO)

    async def run() -> None:
        candidate = Candidate(region, publisher, wanted, settings, replication_factor)
        await _until_signal(candidate)

    asyncio.run(run())


async def _until_signal(candidate: Candidate) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, candidate.stop)
    await candidate.run()


def _publisher(sink: str) -> Publisher:
    """Return the publisher for `--sink`, which makes output visible."""
    kind, _, place = sink.partition(":")
    if not place or kind not in ("parquet", "delta"):
        raise KohortError(f"--sink must be parquet:PATH or delta:TABLE, not {sink}")
    if kind == "delta":
        from kohort.region.sinks.delta import DeltaPublisher

        return DeltaPublisher(place)
    from kohort.region.sinks.directory import ParquetDirectory

    return ParquetDirectory(place)


@app.command()
def ui(
    region: Name,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; one that other machines can reach needs a token."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 chooses a free port.")] = 8080,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the page's token; by default one is generated."),
    ] = None,
) -> None:
    """Show a web page with the region's state and history, until SIGTERM or Ctrl-C.

    It has buttons for drain and reset.
    """
    from kohort.region.inspecting import look

    try:
        from kohort.region.ui.guard import token_of
        from kohort.region.ui.page import Serving
    except ModuleNotFoundError as error:
        raise KohortError(
            f'the page needs the package {error.name}: pip install "kohort[ui]"'
        ) from error
    settings = client_settings(bootstrap_servers, command_config)
    token = token_of(host, token_file)
    asyncio.run(look(region, settings))  # fail at once if the region is missing
    serving = Serving(region, settings, host, port, token)
    typer.echo(f"region {region}: {serving.address}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the server raises it again
    try:
        asyncio.run(serving.run())
    except KeyboardInterrupt:
        return


# ------------------------------------------------------------------------------------------ helpers


def _ask(
    region: str,
    what: str,
    bootstrap_servers: str,
    command_config: Path | None,
    why: str,
    timeout: float,
    *,
    force: bool = False,
) -> RegionState:
    from kohort.region.inspecting import ask

    settings = client_settings(bootstrap_servers, command_config)
    return asyncio.run(ask(region, settings, what, force=force, why=why, timeout_s=timeout))


def _tell(as_json: bool, region: str, state: RegionState, done: str) -> None:
    typer.echo(json.dumps(as_dict(region, state)) if as_json else f"region {region}: {done}")


def client_settings(bootstrap_servers: str, command_config: Path | None) -> ClientSettings:
    """Return the settings of the clients, in snake_case."""
    found = read_command_config(command_config)
    given = {name.replace(".", "_"): value for name, value in found.items()}
    own = {"default_api_timeout_ms": PATIENCE_MS, **without_aliases(given)}
    return {**own, "bootstrap_servers": bootstrap_servers}
