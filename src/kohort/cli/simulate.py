"""`kohort simulate`: run the machines of a group under every fault, in virtual time."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kohort.errors import ConfigError

if TYPE_CHECKING:
    from kohort.simulation.fleet import Summary
    from kohort.simulation.running import Outcome
    from kohort.simulation.scenario import Scenario

_HOUR_MS = 3_600_000


def simulate(
    seed: Annotated[int, typer.Option(min=0, help="The first seed; one seed is one run.")] = 0,
    runs: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 20,
    members: Annotated[int | None, typer.Option(min=1, help="Members; drawn if not said.")] = None,
    protocol: Annotated[
        str | None,
        typer.Option(help="classic, cooperative or consumer; they take turns if not said."),
    ] = None,
    faults: Annotated[
        str | None, typer.Option(help="Kinds of faults, by commas; 'none' for none.")
    ] = None,
    minutes: Annotated[
        int | None, typer.Option(min=1, help="Minutes in which faults happen.")
    ] = None,
    scenario: Annotated[
        Path | None, typer.Option(help="A scenario as TOML: what it costs under each protocol.")
    ] = None,
    trace: Annotated[bool, typer.Option(help="Print every event of the first run.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each run.")] = False,
) -> None:
    """Run consumer groups in virtual time, under faults, and check every rule after every event.

    Exit code 0 when no rule was broken, 1 when one was; the trace of the smallest scenario that
    breaks it is printed. With --scenario the scenario is run under each protocol instead, and what
    it costs is shown side by side.
    """
    if scenario is not None:
        _what_if(scenario, as_json)
        return
    wanted = [_drawn(s, protocol, members, faults, minutes) for s in range(seed, seed + runs)]
    if trace:
        _print_trace(wanted[0])
        return
    summary = _run(wanted, as_json)
    if summary.failed and not as_json:
        _explain(summary.failed[0])
    raise typer.Exit(1 if summary.failed else 0)


def _drawn(
    seed: int, protocol: str | None, members: int | None, faults: str | None, minutes: int | None
) -> Scenario:
    from kohort.simulation.drawing import PALETTE, draw, draw_faults
    from kohort.simulation.protocols import PROTOCOLS

    names = tuple(PROTOCOLS)
    if protocol is not None and protocol not in names:
        raise ConfigError(f"no protocol {protocol!r}; there are: {', '.join(names)}")
    drawn = draw(seed, protocol or names[seed % len(names)], minutes)
    if members is not None:
        plans = drawn.members
        chosen = tuple(
            replace(plans[number % len(plans)], name=f"member-{number + 1}", instance="")
            for number in range(members)
        )
        drawn = replace(drawn, members=chosen, group_max_size=max(members, drawn.group_max_size))
    if faults is not None:
        kinds = frozenset() if faults == "none" else frozenset(faults.split(","))
        unknown = sorted(kinds - PALETTE.keys())
        if unknown:
            raise ConfigError(f"no fault {unknown[0]!r}; there are: {', '.join(PALETTE)}")
        chosen_faults = draw_faults(seed, list(drawn.members), drawn.minutes, kinds)
        drawn = replace(drawn, faults=chosen_faults if kinds else ())
    return drawn


def _run(wanted: list[Scenario], as_json: bool) -> Summary:
    from kohort.simulation.coverage import counted, must_hit
    from kohort.simulation.fleet import Summary
    from kohort.simulation.running import run

    summary, started = Summary(), time.perf_counter()
    console = Console(stderr=True)
    quiet = as_json or not console.is_terminal
    with (
        counted() as taken,
        Live(Text(), console=console, refresh_per_second=4, transient=True) as live,
    ):
        for each in wanted:
            outcome = run(each)
            summary.add(outcome)
            if as_json:
                typer.echo(json.dumps(_as_dict(outcome)))
            if not quiet:
                live.update(Text(_progress(summary, len(wanted), started)))
        rows = sum(1 for row in must_hit() if taken[row]), len(must_hit())
    if not as_json:
        Console().print(_table(summary, time.perf_counter() - started, rows))
    return summary


def _progress(summary: Summary, runs: int, started: float) -> str:
    seconds = max(time.perf_counter() - started, 0.001)
    hours = summary.simulated_ms / _HOUR_MS
    rate = summary.events / seconds
    return f"{summary.runs}/{runs} runs, {hours:.1f} hours of virtual time, {rate:,.0f} events/s"


def _as_dict(outcome: Outcome) -> dict[str, object]:
    return {
        "seed": outcome.scenario.seed,
        "protocol": outcome.scenario.protocol,
        "members": len(outcome.scenario.members),
        "minutes": outcome.scenario.minutes,
        "faults": len(outcome.scenario.faults),
        "trace_hash": outcome.digest,
        "events": outcome.events,
        "rebalances": outcome.rebalances,
        "simulated_ms": outcome.simulated_ms,
        "repeated_records": outcome.repeated,
        "verdict": outcome.verdict,
        "complaint": outcome.complaint,
    }


def _table(summary: Summary, seconds: float, rows: tuple[int, int]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    kinds = sorted((name, n) for name, n in summary.notes.items() if name.startswith("fault "))
    lines = {
        "runs": f"{summary.runs}, {len(summary.failed)} broke a rule",
        "virtual time": f"{summary.simulated_ms / _HOUR_MS:.1f} hours in {seconds:.1f} s",
        "events": f"{summary.events:,}, {summary.events / seconds:,.0f}/s",
        "rebalances": f"{summary.rebalances:,}",
        "records handed out again": f"{summary.repeated:,}",
        "rows of the tables taken": f"{rows[0]} of {rows[1]}",
        "faults": ", ".join(f"{name.removeprefix('fault ')} {n}" for name, n in kinds) or "none",
    }
    for name, text in lines.items():
        table.add_row(name, text)
    return table


def _explain(failed: Outcome) -> None:
    """Shrink a failing run, and print what is left of it, event by event."""
    from kohort.simulation.running import run
    from kohort.simulation.scenario import to_toml
    from kohort.simulation.shrinking import shrink

    verdict = failed.verdict
    small = shrink(failed.scenario, lambda each: run(each, trace=False).verdict == verdict)
    outcome = run(small, keep_lines=True)
    for line in outcome.lines[-200:]:
        typer.echo(line)
    typer.echo(f"\n{outcome.complaint}\n\nthe smallest scenario that shows it:\n")
    typer.echo(to_toml(small, outcome.complaint))


def _print_trace(scenario: Scenario) -> None:
    from kohort.simulation.running import run

    outcome = run(scenario, keep_lines=True)
    for line in outcome.lines:
        typer.echo(line)
    typer.echo(f"{outcome.verdict} {outcome.complaint}".strip())


def _what_if(path: Path, as_json: bool) -> None:
    from kohort.simulation.scenario import from_toml
    from kohort.simulation.whatif import compare

    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    costs = compare(from_toml(text))
    if as_json:
        typer.echo(json.dumps({"costs": [asdict(cost) for cost in costs]}))
        return
    names = ("PROTOCOL", "MOVED", "ROUNDS", "GAPS", "GAP-P50", "GAP-P99", "UNOWNED", "REPEATED")
    table = Table(*names, box=None, pad_edge=False)
    for cost in costs:
        table.add_row(
            cost.protocol,
            str(cost.moved),
            str(cost.rounds),
            str(cost.gaps),
            f"{cost.gap_p50_ms} ms",
            f"{cost.gap_p99_ms} ms",
            f"{cost.unowned_ms} ms",
            str(cost.repeated),
        )
    Console().print(table)
