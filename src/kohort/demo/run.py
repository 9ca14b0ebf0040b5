"""Run the demo from the first act to the verdict."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from kohort.demo import flights, outcome, verdict
from kohort.demo.actors import Actor
from kohort.demo.panel import Counters, DemoPanel
from kohort.demo.replay import Replay
from kohort.demo.script import Script
from kohort.demo.settings import APPLICATIONS, Calendar, DemoSettings
from kohort.demo.stage import Stage

if TYPE_CHECKING:
    import pyarrow as pa

_WARM_UP_S = 120.0


def run(settings: DemoSettings) -> int:
    """Run the demo.

    Returns:
        The exit code: 0 when the table holds every flight exactly once, 1 when anything is wrong.
    """
    console = Console(stderr=settings.as_json)
    started = time.monotonic()
    outcome.demo_folder(settings.out)
    table = flights.load_table()
    with ExitStack() as stack:
        stage = stack.enter_context(Stage(settings))
        actors = _cast(settings, stage, stack, console)
        stage.curtain()
        script = _perform(settings, stage, actors, table, console)
        result = _judge(settings, stage, script, table, time.monotonic() - started)
    outcome.write_files(result)
    if settings.as_json:
        sys.stdout.write(json.dumps(outcome.as_dict(result)) + "\n")
    else:
        outcome.show(result, Console())
    return 0 if result.verdict.passed else 1


def _cast(
    settings: DemoSettings, stage: Stage, stack: ExitStack, console: Console
) -> dict[str, Actor]:
    """Start the applications all at once and wait until each is warm."""
    kind = "Python consumers" if settings.quick else "Spark applications (a JVM each)"
    with console.status(f"Starting three {kind} and letting them warm up ..."):
        actors = {name: _actor(settings, stage, name) for name in APPLICATIONS}
        for actor in actors.values():
            stack.callback(actor.close)
        for actor in actors.values():
            actor.wait_for("ready", _WARM_UP_S)
    return actors


def _actor(settings: DemoSettings, stage: Stage, name: str) -> Actor:
    out = settings.out.absolute()
    arguments = ["--name", name, "--bootstrap", stage.bootstrap_servers, "--topic", stage.topic]
    arguments += ["--group", stage.group, "--table", str(out / "table")]
    arguments += ["--session-timeout-ms", str(settings.session_timeout_ms)]
    arguments += ["--group-protocol", settings.group_protocol.value]
    if settings.quick:
        arguments += ["--sabotage"] if settings.sabotage else []
        module = "kohort.demo.python_app"
    else:
        arguments += ["--checkpoint", str(out / "checkpoints" / name)]
        arguments += ["--source", "kohort_sabotage" if settings.sabotage else "kohort"]
        module = "kohort.demo.spark_app"
    return Actor(name, module, arguments, log=Path(out / f"{name}.log"))


def _perform(
    settings: DemoSettings,
    stage: Stage,
    actors: dict[str, Actor],
    table: pa.Table,
    console: Console,
) -> Script:
    pace = settings.days_per_second
    replay = Replay(table, stage.producer, stage.topic, pace)
    panel = DemoPanel(APPLICATIONS, settings.group_protocol.description, console)
    try:
        if settings.as_json or not console.is_terminal:
            script = Script(actors, stage, replay, _announcer(console), Calendar())
            script.play()
            return script
        with Live(console=console, refresh_per_second=4, transient=False) as live:

            def draw(act: str) -> None:
                counters = _counters(stage, actors, replay, table.num_rows)
                live.update(panel.render(act, counters, stage.timeline, stage.now_ms()))

            script = Script(actors, stage, replay, draw, Calendar())
            script.play()
            return script
    finally:
        replay.stop()


def _announcer(console: Console) -> Callable[[str], None]:
    """Return what draws where there is no terminal: one line for each act."""
    shown: list[str] = []

    def announce(act: str) -> None:
        if act not in shown:
            shown.append(act)
            console.print(act)

    return announce


def _counters(stage: Stage, actors: dict[str, Actor], replay: Replay, total: int) -> Counters:
    return Counters(
        day=replay.progress.day,
        published=replay.progress.published,
        read=sum(actor.state.read for actor in actors.values()),
        committed=stage.committed(),
        total=total,
    )


def _judge(
    settings: DemoSettings, stage: Stage, script: Script, table: pa.Table, seconds: float
) -> outcome.Outcome:
    path = settings.out / "table"
    facts = verdict.read_table(path) if settings.quick else verdict.read_table_with_spark(path)
    expected = flights.figures_of(table)
    judged = verdict.judge(expected, facts, APPLICATIONS, script.moved_under_load)
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
        # What the killed application had read but not committed came again, unless it was lost.
        reread=max(script.open_at_kill - judged.lost, 0),
        seconds=seconds,
        table_read_by="deltalake" if settings.quick else "Spark SQL",
        ownership_seen_by=stage.seen_by,
    )
