"""The implementation of `kohort simulate --protocol transactions`."""

from __future__ import annotations

import json
from collections.abc import Iterable

import typer

from kohort.simulation.transactions.world import OK, TransactionOutcome, drawn, run


def seeds(numbers: Iterable[int], *, goes_on: bool, as_json: bool) -> int:
    """Run seeds; return the exit code, 1 when a rule was broken.

    Args:
        numbers: The seeds.
        goes_on: Whether to continue after a run that breaks a rule.
        as_json: Whether to print only a JSON object for each run.
    """
    done = failed = 0
    try:
        for seed in numbers:
            outcome = run(drawn(seed))
            done += 1
            failed += outcome.verdict != OK
            if as_json:
                _print(outcome)
            elif outcome.verdict != OK:
                typer.echo(f"seed {seed}: {outcome.complaint}")
                typer.echo(f"again: kohort simulate --protocol transactions --seed {seed} --trace")
            if outcome.verdict != OK and not goes_on:
                break
    except KeyboardInterrupt:
        pass
    if not as_json:
        typer.echo(f"{done} histories of transactions, {failed} broke a rule")
    return 1 if failed else 0


def trace(seed: int, *, as_json: bool) -> int:
    """Run one seed and print every step; return the exit code."""
    outcome = run(drawn(seed))
    if as_json:
        _print(outcome, lines=outcome.lines)
    else:
        for line in (*outcome.lines, "", outcome.complaint or outcome.verdict):
            typer.echo(line)
    return 0 if outcome.verdict == OK else 1


def _print(outcome: TransactionOutcome, **more: object) -> None:
    plain = {
        "seed": outcome.scenario.seed,
        "verdict": outcome.verdict,
        "complaint": outcome.complaint,
        "notes": dict(sorted(outcome.notes.items())),
    }
    typer.echo(json.dumps({**plain, **more}))
