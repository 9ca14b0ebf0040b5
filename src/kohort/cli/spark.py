"""`kohort spark`: move queries between Spark's own Kafka source and kohort's."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kohort.cli.command_config import CommandConfig, read_command_config
from kohort.cli.shared import AsJson, Bootstrap
from kohort.errors import ConfigError
from kohort.values import replace

if TYPE_CHECKING:
    from kohort.spark.checkpoint.history import Offsets
    from kohort.spark.checkpoint.migrate import Move, Moved

app = typer.Typer(
    help="Move queries between Spark's own Kafka source and kohort's.", no_args_is_help=True
)


class OpenBatchChoice(StrEnum):
    """How to treat a batch that has begun and is not finished."""

    REPEAT = "repeat"
    DROP = "drop"


class PositionsChoice(StrEnum):
    """Which of the group's offsets and the checkpoint applies if they disagree."""

    GROUP = "group"
    CHECKPOINT = "checkpoint"


class MissingChoice(StrEnum):
    """The offset for a partition without an offset of the group."""

    EARLIEST = "earliest"
    LATEST = "latest"


# As `startingOffsets` writes them.
_MISSING = {MissingChoice.EARLIEST: -2, MissingChoice.LATEST: -1}

Checkpoint = Annotated[
    str,
    typer.Argument(metavar="CHECKPOINT", help="The query's checkpointLocation: a path or a URI."),
]
Copy = Annotated[
    str | None, typer.Argument(metavar="[COPY]", help="New folder for the converted checkpoint.")
]
InPlace = Annotated[
    bool,
    typer.Option("--in-place", help="Change CHECKPOINT itself, after a backup beside it."),
]
OpenBatchOption = Annotated[
    OpenBatchChoice | None,
    typer.Option(
        "--open-batch",
        help="An unfinished batch: repeat runs it again under its number, as Spark does after"
        " a crash; drop forgets it, and its records come in a batch with other bounds.",
        show_default="refuse",
    ),
]
Positions = Annotated[
    PositionsChoice | None,
    typer.Option(
        help="Which to use when the group was reset to before the checkpoint.",
        show_default="refuse",
    ),
]
Quiet = Annotated[
    float,
    typer.Option(
        "--quiet-seconds",
        min=0,
        help="How old the last batch must be; the command waits, and refuses what is written.",
    ),
]


@app.command("import-checkpoint")
def import_checkpoint(
    checkpoint: Checkpoint,
    bootstrap_servers: Bootstrap,
    copy: Copy = None,
    command_config: CommandConfig = None,
    group: Annotated[
        str | None,
        typer.Option(help="kafka.group.id of the new query; omit for groupMode=none."),
    ] = None,
    in_place: InPlace = False,
    open_batch: OpenBatchOption = None,
    reset_offsets: Annotated[
        bool, typer.Option("--reset-offsets", help="Replace existing offsets of the group.")
    ] = False,
    quiet_seconds: Quiet = 10.0,
    as_json: AsJson = False,
) -> None:
    """Convert a checkpoint of Spark's own Kafka source to kohort's, and set the group's offsets.

    Stop the query first. It continues with format("kohort") where it stopped, with its state: no
    record is lost or read twice. Spark's own source must no longer be started with this checkpoint.
    """
    from kohort.spark.checkpoint.migrate import import_checkpoint as run

    move = _move(checkpoint, copy, in_place, bootstrap_servers, group, open_batch, quiet_seconds)
    move = replace(move, client=read_command_config(command_config))
    _run(run, _with(move, reset_offsets=reset_offsets), "kohort", as_json)


@app.command("export-checkpoint")
def export_checkpoint(
    checkpoint: Checkpoint,
    bootstrap_servers: Bootstrap,
    copy: Copy = None,
    command_config: CommandConfig = None,
    group: Annotated[
        str | None, typer.Option(help="The query's kafka.group.id; omit for groupMode=none.")
    ] = None,
    in_place: InPlace = False,
    open_batch: OpenBatchOption = None,
    positions: Positions = None,
    quiet_seconds: Quiet = 10.0,
    as_json: AsJson = False,
) -> None:
    """Convert a checkpoint of kohort's source to one of Spark's own Kafka source.

    Stop all queries of the group first: Spark's own source reads every partition, from the group's
    offset on. The group's offsets do not change.
    """
    from kohort.spark.checkpoint.migrate import export_checkpoint as run

    move = _move(checkpoint, copy, in_place, bootstrap_servers, group, open_batch, quiet_seconds)
    move = replace(move, client=read_command_config(command_config))
    _run(run, _with(move, positions=positions), "spark", as_json)


@app.command("export-offsets")
def export_offsets(
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="CHECKPOINT", help="Checkpoint of Spark's own source or kohort's."),
    ] = None,
    group: Annotated[str | None, typer.Option(help="Consumer group.")] = None,
    bootstrap_servers: Annotated[
        str | None,
        typer.Option("--bootstrap-servers", "--bootstrap-server", "-b", metavar="HOST:PORT"),
    ] = None,
    command_config: CommandConfig = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="Only this topic of the group; repeatable.")
    ] = None,
    missing: Annotated[
        MissingChoice | None,
        typer.Option(
            help="Used for partitions without an offset in the group.", show_default="refuse"
        ),
    ] = None,
    positions: Positions = None,
    as_json: AsJson = False,
) -> None:
    """Print offsets in the format of the option startingOffsets of Spark's own source.

    The offsets are those of a group or of a checkpoint; a checkpoint of a group member needs the
    group as well. Changes nothing.
    """
    from kohort.spark.checkpoint.history import kafka_json
    from kohort.spark.checkpoint.migrate import Move, checkpoint_offsets, group_starts

    warnings: tuple[str, ...] = ()
    client = read_command_config(command_config)
    if checkpoint is not None:
        if topic or missing:
            raise ConfigError("--topic and --missing are for a group without --checkpoint")
        servers = bootstrap_servers or ""
        move = Move(
            source=checkpoint,
            target=None,
            bootstrap_servers=servers,
            client=client,
            group_id=group,
        )
        offsets, warnings = checkpoint_offsets(_with(move, positions=positions))
    elif group is not None and bootstrap_servers is not None:
        number = None if missing is None else _MISSING[missing]
        offsets = group_starts(bootstrap_servers, group, topic or (), number, client)
    else:
        raise ConfigError("give --checkpoint, or --group with --bootstrap-servers")
    _warn(warnings)
    text = kafka_json(offsets)
    shown = {"startingOffsets": json.loads(text), "warnings": list(warnings)}
    typer.echo(json.dumps(shown) if as_json else text)


def _move(
    checkpoint: str,
    copy: str | None,
    in_place: bool,
    bootstrap_servers: str,
    group: str | None,
    open_batch: OpenBatchChoice | None,
    quiet_seconds: float,
) -> Move:
    from kohort.spark.checkpoint.migrate import Move

    if in_place == (copy is not None):
        raise ConfigError("give a folder for the copy, or --in-place")
    if group == "":
        raise ConfigError("--group is empty: leave it out for a query without a group")
    return Move(
        source=checkpoint,
        target=copy,
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        open_batch=None if open_batch is None else open_batch.value,
        quiet_s=quiet_seconds,
    )


def _with(
    move: Move, *, positions: PositionsChoice | None = None, reset_offsets: bool = False
) -> Move:
    return replace(
        move,
        positions=None if positions is None else positions.value,
        reset_offsets=reset_offsets,
    )


def _run(run: Callable[[Move], Moved], move: Move, to: str, as_json: bool) -> None:
    try:
        moved = run(move)
    except OSError as error:
        places = " or ".join(filter(None, (move.source, move.target)))
        raise ConfigError(f"{places} cannot be read or written: {error}") from error
    _warn(moved.warnings)
    if as_json:
        typer.echo(json.dumps(_as_dict(move, moved, to)))
        return
    typer.echo(f"{moved.checkpoint} is now a checkpoint for format({_format(to)!r})")
    typer.echo(f"finished batch: {moved.batch if moved.batch >= 0 else 'none'}")
    if moved.open_batch is not None:
        typer.echo(f"open batch: {moved.open_batch}, to {move.open_batch}")
    if moved.backup:
        typer.echo(f"original: {moved.backup}")
    told = f" and in group {move.group_id}" if to == "kohort" and move.group_id else ""
    typer.echo(f"continues, by its checkpoint{told}, from {_json(moved.offsets)}")


def _format(to: str) -> str:
    return "kafka" if to == "spark" else to


def _as_dict(move: Move, moved: Moved, to: str) -> dict[str, object]:
    return {
        "checkpoint": moved.checkpoint,
        "format": _format(to),
        "backup": moved.backup,
        "group": move.group_id,
        "batch": moved.batch,
        "open_batch": moved.open_batch,
        "open_batch_choice": move.open_batch if moved.open_batch is not None else None,
        "offsets": json.loads(_json(moved.offsets)),
        "warnings": list(moved.warnings),
    }


def _json(offsets: Offsets) -> str:
    from kohort.spark.checkpoint.history import kafka_json

    return kafka_json(offsets)


def _warn(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        typer.echo(f"kohort: warning: {warning}", err=True)
