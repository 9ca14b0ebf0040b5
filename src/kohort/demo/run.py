"""Runs the demo from the first act to the verdict."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from rich.console import Console
from rich.live import Live

from kohort.demo import flights, outcome, verdict
from kohort.demo.actors import Actor
from kohort.demo.panel import Counters, DemoPanel
from kohort.demo.replay import Replay
from kohort.demo.script import Script
from kohort.demo.settings import APPLICATIONS, Calendar, DemoSettings
from kohort.demo.stage import Stage
from kohort.values import replace

if TYPE_CHECKING:
    import pyarrow as pa

_WARM_UP_S = 120.0
_LAST_LOOK_S = 60.0


def run(settings: DemoSettings) -> int:
    """Run the demo.

    Returns:
        The exit code: 0 if the table holds every flight exactly once, 1 if anything is wrong.
    """
    console = Console(stderr=settings.as_json)
    started = time.monotonic()
    outcome.demo_folder(settings.out)
    table = flights.load_table()
    with ExitStack() as stack:
        stage = stack.enter_context(Stage(settings))
        cast = _start(settings, stage, stack, console)
        stage.curtain()
        script = _perform(settings, stage, cast, table, console)
        result = _judge(settings, stage, script, cast, table)
    result = replace(result, seconds=time.monotonic() - started)
    outcome.write_files(result)
    if settings.as_json:
        sys.stdout.write(json.dumps(outcome.as_dict(result)) + "\n")
    else:
        outcome.show(result, Console())
    return 0 if result.verdict.passed else 1


class _Cast(Struct, frozen=True):
    """The processes of the demo.

    Attributes:
        applications: The applications that read and write, by name.
        reader: Checks the table while it is written; None without a region.
    """

    applications: dict[str, Actor]
    reader: Actor | None


def _start(settings: DemoSettings, stage: Stage, stack: ExitStack, console: Console) -> _Cast:
    """Start all processes at once and wait until each is warm."""
    kind = "Python applications" if settings.quick else "Spark applications (a JVM each)"
    with console.status(f"Starting three {kind} and letting them warm up ..."):
        actors = {name: _actor(settings, stage, name) for name in APPLICATIONS}
        reader = _reader(settings, stage) if settings.region else None
        started = [*actors.values(), *([reader] if reader else [])]
        for actor in started:
            stack.callback(actor.close)
        for actor in started:
            actor.wait_for("ready", _WARM_UP_S)
    return _Cast(actors, reader)


def _actor(settings: DemoSettings, stage: Stage, name: str) -> Actor:
    out = settings.out.absolute()
    arguments = ["--name", name, "--bootstrap", stage.bootstrap_servers, "--topic", stage.topic]
    arguments += ["--group", stage.group, "--table", str(out / "table")]
    arguments += ["--session-timeout-ms", str(settings.session_timeout_ms)]
    arguments += ["--group-protocol", settings.group_protocol.value]
    arguments += ["--region", stage.region] if settings.region else []
    if settings.quick:
        arguments += ["--sabotage"] if settings.sabotage else []
        module = "kohort.demo.python_app"
    else:
        arguments += ["--checkpoint", str(out / "checkpoints" / name)]
        arguments += ["--source", "kohort_sabotage" if settings.sabotage else "kohort"]
        module = "kohort.demo.spark_app"
    return Actor(name, module, arguments, log=Path(out / f"{name}.log"))


def _reader(settings: DemoSettings, stage: Stage) -> Actor:
    out = settings.out.absolute()
    arguments = ["--bootstrap", stage.bootstrap_servers, "--topic", stage.topic]
    arguments += ["--table", str(out / "table")]
    return Actor("reader", "kohort.demo.reader", arguments, log=out / "reader.log")


def _perform(
    settings: DemoSettings, stage: Stage, cast: _Cast, table: pa.Table, console: Console
) -> Script:
    replay = Replay(table, stage.producer, stage.topic, settings.days_per_second)
    what = "consistent region" if settings.region else "group"
    panel = DemoPanel(APPLICATIONS, what, settings.group_protocol.description, console)
    try:
        if settings.as_json or not console.is_terminal:
            return _play(cast, stage, replay, _announcer(console))
        with Live(console=console, refresh_per_second=4, transient=False) as live:

            def draw(act: str) -> None:
                counters = _counters(stage, cast, replay, table.num_rows)
                live.update(panel.render(act, counters, stage.timeline, stage.now_ms()))

            return _play(cast, stage, replay, draw)
    finally:
        replay.stop()


def _play(cast: _Cast, stage: Stage, replay: Replay, draw: Callable[[str], None]) -> Script:
    script = Script(cast.applications, stage, replay, draw, Calendar())
    script.play()
    if cast.reader is not None:
        cast.reader.tell("drain")  # it checks one last time
        cast.reader.wait_for("drained", _LAST_LOOK_S)
    draw("done")
    return script


def _announcer(console: Console) -> Callable[[str], None]:
    """Return the display for use without a terminal: one line per act."""
    shown: list[str] = []

    def announce(act: str) -> None:
        if act not in shown:
            shown.append(act)
            console.print(act)

    return announce


def _counters(stage: Stage, cast: _Cast, replay: Replay, total: int) -> Counters:
    reader = cast.reader
    return Counters(
        day=replay.progress.day,
        published=replay.progress.published,
        read=sum(actor.state.read for actor in cast.applications.values()),
        committed=stage.committed(),
        total=total,
        visible=0 if reader is None else reader.state.visible,
        snapshots=None if reader is None else reader.state.snapshots,
        is_wrong=reader is not None and reader.state.wrong is not None,
    )


def _judge(
    settings: DemoSettings, stage: Stage, script: Script, cast: _Cast, table: pa.Table
) -> outcome.Outcome:
    snapshots = None if cast.reader is None else _snapshots(stage, cast.reader)
    path = settings.out / "table"
    facts = verdict.read_table(path) if settings.quick else verdict.read_table_with_spark(path)
    expected = flights.figures_of(table)
    judged = verdict.judge(expected, facts, APPLICATIONS, script.moved_under_load)
    if snapshots is None:
        # Unless lost, records that the killed application had read but not committed were read
        # again.
        reread = script.open_at_kill - judged.lost
    else:
        judged = replace(
            judged, reasons=judged.reasons + verdict.judge_snapshots(snapshots, facts.rows)
        )
        # All applications went back to the last checkpoint.
        states = [actor.state for actor in cast.applications.values()]
        reread = sum(each.read + each.open_batch for each in states) - facts.rows
    return outcome.Outcome(
        settings=settings,
        verdict=judged,
        facts=facts,
        expected=expected,
        timeline=stage.timeline,
        rebalances=stage.rebalances,
        markers=tuple(script.markers),
        end_ms=script.end_ms,
        offsets=stage.offsets_by_another_client(),
        reread=max(reread, 0),
        seconds=0.0,
        table_read_by="deltalake" if settings.quick else "Spark SQL",
        ownership_seen_by=stage.seen_by,
        snapshots=snapshots,
    )


def _snapshots(stage: Stage, reader: Actor) -> verdict.SnapshotFacts:
    seen, region = reader.state, stage.region_state()
    return verdict.SnapshotFacts(
        snapshots=seen.snapshots,
        last=seen.visible,
        wrong=seen.wrong or "",
        checkpoints=region.completed,
        resets=max(region.attempt - 1, 0),
    )
