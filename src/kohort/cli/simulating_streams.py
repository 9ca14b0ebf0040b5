"""What `kohort simulate --protocol streams` does."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from pathlib import Path

import typer

from kohort.cli.simulating import cause_of
from kohort.errors import ConfigError
from kohort.simulation.streams.running import StreamsOutcome, run, shrink
from kohort.simulation.streams.scenario import StreamsScenario, draw, from_json, to_json


def seeds(numbers: Iterable[int], keep: Path | None, as_json: bool) -> int:
    """Run seeds; return the exit code, 1 when a rule was broken.

    Args:
        numbers: The seeds.
        keep: Folder for the scenarios that fail; None: the first one ends it all.
        as_json: Whether to print an object for each run, and nothing else.
    """
    # Processes die before they have awaited what they began.
    warnings.filterwarnings("ignore", "coroutine 'SimulatedTask", RuntimeWarning)
    done = failed = 0
    try:
        for seed in numbers:
            outcome = run(draw(seed))
            done += 1
            failed += not outcome.is_ok
            if as_json:
                _print(outcome)
            if not outcome.is_ok:
                _report(outcome, keep, as_json)
                if keep is None:
                    break
    except KeyboardInterrupt:
        pass
    if not as_json:
        typer.echo(f"{done} simulated stream applications, {failed} broke a rule")
    return 1 if failed else 0


def _report(outcome: StreamsOutcome, keep: Path | None, as_json: bool) -> None:
    """Write the smallest scenario that fails in the same way to a file."""
    smallest = shrink(outcome.scenario, lambda each: run(each).verdict == outcome.verdict)
    folder = keep or Path()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"streams-seed-{outcome.scenario.seed}.json"
    path.write_text(to_json(smallest), encoding="utf-8")
    if not as_json:
        typer.echo(f"seed {outcome.scenario.seed}: {outcome.complaint}")
        typer.echo(f"replay: kohort simulate --protocol streams --replay {path}")


def replay(path: Path, as_json: bool) -> int:
    """Run a scenario from a file with its trace; return the exit code.

    Raises:
        ConfigError: The file cannot be read, or is no scenario.
    """
    try:
        scenario = from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise ConfigError(f"{path}: {cause_of(error)}") from None
    return trace(scenario, as_json)


def trace(scenario: StreamsScenario, as_json: bool) -> int:
    """Run a scenario and print every event; return the exit code."""
    outcome = run(scenario, keep_lines=True)
    if as_json:
        _print(outcome, lines=outcome.lines)
    else:
        for line in outcome.lines:
            typer.echo(line)
        typer.echo(f"\n{outcome.complaint or outcome.verdict}")
    return 0 if outcome.is_ok else 1


def _print(outcome: StreamsOutcome, **more: object) -> None:
    plain = {
        "seed": outcome.scenario.seed,
        "verdict": outcome.verdict,
        "complaint": outcome.complaint,
        "events": outcome.events,
        "simulated_ms": outcome.simulated_ms,
        "notes": dict(sorted(outcome.notes.items())),
    }
    typer.echo(json.dumps({**plain, **more}))
