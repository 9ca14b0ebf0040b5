"""The implementation of `kohort simulate`, after its options are parsed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from kohort.cli import simulate_view as show
from kohort.errors import ConfigError
from kohort.simulation.coverage import counted
from kohort.simulation.groups.protocols import PROTOCOLS
from kohort.simulation.runs import campaign
from kohort.simulation.runs.campaign import ALL, Choice, Finding
from kohort.simulation.runs.fleet import Summary
from kohort.simulation.runs.running import Outcome
from kohort.simulation.runs.scenario import Scenario, from_toml, nearest, to_toml
from kohort.simulation.runs.what_if import compare, read_scenario


def seeds(
    choice: Choice, numbers: Iterable[int], total: int, keep: Path | None, as_json: bool
) -> int:
    """Run seeds; return the exit code, 1 when a rule was broken.

    Args:
        choice: The settings that the seed does not determine.
        numbers: The seeds.
        total: The number of seeds; 0: unknown.
        keep: Folder for failing scenarios; None: stop at the first one.
        as_json: Whether to print only a JSON object for each run.
    """
    summary, console = Summary(), _console(quiet=as_json)
    with counted() as rows, show.Progress(console, total) as progress:
        try:
            for outcome in campaign.run_all(choice, numbers, summary):
                progress.ran(outcome, summary)
                found = None if outcome.is_ok else _reduced(outcome, progress)
                if as_json:
                    _print_run(outcome, found)
                if found is not None:
                    path = _write(found, keep)
                    console.print(show.finding(found, choice.options, str(path), console.width))
                    if keep is None:
                        break
        except KeyboardInterrupt:
            console.print("stopped")
        seconds = progress.seconds
    console.print(show.summary(summary, rows, seconds))
    return 1 if summary.failed else 0


def _reduced(outcome: Outcome, progress: show.Progress) -> Finding:
    seed = outcome.scenario.seed
    return campaign.reduce(
        outcome, lambda tried: progress.say(f"seed {seed} failed; shrinking it, {tried} runs")
    )


def _write(found: Finding, keep: Path | None) -> Path:
    """Write the smallest scenario to a file."""
    first = found.first.scenario
    folder = keep or Path()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{first.protocol}-seed-{first.seed}.toml"
    said = f"{found.smallest.complaint}\nFirst seen with seed {first.seed}, {first.protocol}."
    path.write_text(to_toml(found.smallest.scenario, said), encoding="utf-8")
    return path


def _print_run(outcome: Outcome, found: Finding | None) -> None:
    shown = show.outcome_as_dict(outcome)
    if found is not None:
        shown["scenario"] = to_toml(found.smallest.scenario)
    typer.echo(json.dumps(shown))


def replay(path: Path, as_json: bool) -> int:
    """Run a scenario from a file with its trace; return the exit code."""
    try:
        scenario = from_toml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise ConfigError(f"{path}: {cause_of(error)}") from None
    return trace(scenario, as_json)


def trace(scenario: Scenario, as_json: bool) -> int:
    """Run a scenario and print every event; return the exit code."""
    outcome, timeline = campaign.watch(scenario)
    if as_json:
        typer.echo(json.dumps({**show.outcome_as_dict(outcome), "lines": outcome.lines}))
        return 0 if outcome.is_ok else 1
    console = _console()
    for line in outcome.lines:
        typer.echo(line)
    console.print(Text(), show.ownership(timeline, outcome.simulated_ms, console.width))
    style = "green" if outcome.is_ok else "bold red"
    console.print(Text(f"\n{outcome.complaint or outcome.verdict}", style=style))
    return 0 if outcome.is_ok else 1


def what_if(path: Path, protocol: str, runs: int, as_json: bool) -> int:
    """Run one scenario under each protocol, and show them side by side; return the exit code."""
    try:
        scenario = read_scenario(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise ConfigError(f"{path}: {cause_of(error)}") from None
    names = tuple(PROTOCOLS) if protocol == ALL else (protocol,)
    if protocol != ALL and protocol not in PROTOCOLS:
        raise ConfigError(f"no protocol {protocol!r}{nearest(protocol, (*PROTOCOLS, ALL))}")
    console = _console(quiet=as_json)
    with show.Progress(console, runs) as progress:
        tell = partial(_tell, progress, runs)
        measured = compare(scenario, names, runs, tell)
    if as_json:
        for each in measured:
            typer.echo(json.dumps(show.measured_as_dict(each)))
    partitions = sum(topic.partitions for topic in scenario.topics)
    console.print(
        f"{path.name}: {len(scenario.members)} members, {partitions} partitions,"
        f" {scenario.minutes} minutes; runs of each: {runs}",
        highlight=False,
    )
    console.print(show.compared(measured))
    return 1 if any(each.verdicts for each in measured) else 0


def _tell(progress: show.Progress, runs: int, protocol: str, number: int) -> None:
    progress.say(f"{protocol}: run {number + 1} of {runs}")


def cause_of(error: Exception) -> str:
    """Return the text of an error, without the path that the operating system adds."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _console(quiet: bool = False) -> Console:
    """Return the console: output that is not a terminal gets lines in full."""
    console = Console(quiet=quiet, highlight=False)
    return console if console.is_terminal else Console(quiet=quiet, highlight=False, width=120)
