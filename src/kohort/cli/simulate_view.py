"""The output of `kohort simulate`: live line, findings, closing table, comparison of protocols."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from rich.box import SIMPLE
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kohort.observe.timeline import OwnershipTimeline
from kohort.simulation.coverage import must_hit
from kohort.simulation.runs.campaign import Finding, faults_in
from kohort.simulation.runs.fleet import Summary
from kohort.simulation.runs.running import Outcome
from kohort.simulation.runs.what_if import Measured

NO_OWNER = "·"
COLORS = ("blue", "yellow", "green", "magenta", "cyan", "red")
_TRACE_LINES = 40
_MARGIN = 24


class Progress:
    """A progress line, if there is a terminal to show it.

    Args:
        console: The console to print on.
        total: The number of runs; 0: until stopped.
    """

    def __init__(self, console: Console, total: int) -> None:
        self._total = total
        self._start = time.perf_counter()
        self._live = Live(console=console, transient=True, refresh_per_second=8)
        self._shown = console.is_terminal

    def __enter__(self) -> Self:
        if self._shown:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:
            self._live.stop()

    @property
    def seconds(self) -> float:
        """The elapsed time, in seconds."""
        return max(time.perf_counter() - self._start, 1e-9)

    def ran(self, outcome: Outcome, runs: Summary) -> None:
        """Show the progress after a run."""
        done = f"{runs.runs} of {self._total}" if self._total else f"{runs.runs}"
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(f"seed {outcome.scenario.seed} {outcome.scenario.protocol:<13}", style="bold")
        line.append(f"{done} runs   {duration(runs.simulated_ms)} simulated   ")
        line.append(f"{runs.events / self.seconds:,.0f} events/s   ", style="dim")
        failed = len(runs.failed)
        line.append(f"{failed} failed" if failed else "ok", style="red" if failed else "green")
        self._live.update(line)

    def say(self, text: str) -> None:
        """Show the current step."""
        self._live.update(Text(text, no_wrap=True, overflow="ellipsis"))


def duration(milliseconds: float) -> str:
    """Return a readable duration."""
    seconds = milliseconds / 1000
    if seconds < 1:
        return f"{milliseconds:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 100 * 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{minutes / 60 / 24:.1f} days"


# ------------------------------------------------------------------------------ the closing table


def summary(runs: Summary, rows: Counter[str], seconds: float) -> RenderableType:
    """Return the closing table.

    Args:
        runs: The runs.
        rows: How often each row of the transition tables was taken.
        seconds: The elapsed time, in seconds.
    """
    failed = len(runs.failed)
    verdict = Text(f"{failed} failed", style="bold red") if failed else Text("all ok", "green")
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    table.add_row("runs", Text(f"{runs.runs:,}, ").append_text(verdict))
    faster = runs.simulated_ms / 1000 / seconds
    table.add_row("virtual time", f"{duration(runs.simulated_ms)} ({faster:,.0f} times real time)")
    table.add_row("events", f"{runs.events:,} ({runs.events / seconds:,.0f} a second)")
    table.add_row("rebalances", f"{runs.rebalances:,}")
    table.add_row("records read again", f"{runs.repeated:,} (allowed after a fault)")
    faults = faults_in(runs.notes)
    table.add_row("faults", f"{sum(faults.values()):,} of {len(faults)} kinds")
    if faults:
        cells = [f"{kind} {number:,}" for kind, number in faults.items()]
        table.add_row("", Columns(cells, padding=(0, 2), column_first=True))
    table.add_row("rows taken", ", ".join(row_counts(rows)))
    return Group(Text(), table)


def row_counts(rows: Counter[str]) -> list[str]:
    """Return the number of taken rows and of all rows of each transition table."""
    total: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    for label in must_hit():
        name = label.partition(":")[0]
        total[name] += 1
        taken[name] += label in rows
    return [f"{name} {taken[name]}/{number}" for name, number in total.items()]


# ------------------------------------------------------------------------------ what was found


def finding(found: Finding, options: str, where: str, width: int) -> RenderableType:
    """Return the report of a failed run.

    Args:
        found: The run, and the smallest one.
        options: Options of the command on which the run depends.
        where: The file with the smallest scenario.
        width: Width of the terminal, in characters.
    """
    first, small = found.first.scenario, found.smallest.scenario
    head = Text(f"\nseed {first.seed} ({first.protocol}) failed: ", style="bold red")
    head.append(found.smallest.complaint, style="default not bold")
    shrunk = (
        f"shrunk from {len(first.faults)} faults and {len(first.members)} members"
        f" to {len(small.faults)} and {len(small.members)}, in {found.tried} runs"
    )
    last = found.smallest.lines[-_TRACE_LINES:]
    return Group(
        head,
        Text(shrunk, style="dim"),
        Text(f"\nthe last {len(last)} of {len(found.smallest.lines)} events", style="dim"),
        Text("\n".join(last), no_wrap=True, overflow="ellipsis"),
        Text(),
        ownership(found.timeline, found.smallest.simulated_ms, width),
        Text.assemble("\nreplay: ", (f"kohort simulate --replay {where}", "bold")),
        Text.assemble("        ", (_again(found.first) + options, "bold"), ("  (as drawn)", "dim")),
    )


def _again(outcome: Outcome) -> str:
    scenario = outcome.scenario
    options = f"--seed {scenario.seed} --runs 1 --protocol {scenario.protocol}"
    return f"kohort simulate {options}"


def ownership(timeline: OwnershipTimeline, until_ms: int, width: int) -> RenderableType:
    """Return the owners over time: a row for each partition, a letter for each member."""
    owners = {
        span.owner: None
        for partition in timeline.partitions
        for span in timeline.spans(partition, until_ms)
        if span.owner is not None
    }
    letters = {
        owner: Text(chr(ord("A") + index % 26), style=COLORS[index % len(COLORS)])
        for index, owner in enumerate(sorted(owners))
    }
    columns = max(width - _MARGIN, 20)
    step = max(-(-until_ms // columns), 1)
    grid = Table.grid(padding=(0, 1))
    for partition in timeline.partitions:
        row = Text(no_wrap=True)
        for at in range(step // 2, until_ms, step):
            owner = timeline.owner_at(partition, at)
            row.append_text(letters.get(owner or "", Text(NO_OWNER, style="red")))
        grid.add_row(Text(f"{partition.topic}-{partition.partition}", style="dim"), row)
    legend = Text(f"one column {duration(step)}   ", style="dim")
    for owner, letter in letters.items():
        legend.append_text(letter).append(f" {owner}   ")
    return Group(grid, legend.append(NO_OWNER, style="red").append(" no owner"))


def outcome_as_dict(outcome: Outcome) -> dict[str, object]:
    """Return a run as a JSON object."""
    scenario = outcome.scenario
    return {
        "seed": scenario.seed,
        "protocol": scenario.protocol,
        "members": len(scenario.members),
        "verdict": outcome.verdict,
        "complaint": outcome.complaint,
        "trace": outcome.digest,
        "events": outcome.events,
        "simulated_ms": outcome.simulated_ms,
        "rebalances": outcome.rebalances,
        "repeated": outcome.repeated,
        "faults": faults_in(outcome.notes),
    }


# ------------------------------------------------------------------------------ what if


def compared(measured: Sequence[Measured]) -> RenderableType:
    """Return the protocols side by side."""
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("")
    for each in measured:
        table.add_column(each.protocol, justify="right")
    for title, cells in _compared_rows(measured):
        table.add_row(title, *cells)
    broken = [
        Text(f"{each.protocol}, {verdict}", style="red")
        for each in measured
        for verdict in each.verdicts
    ]
    return Group(table, *broken)


def _compared_rows(measured: Iterable[Measured]) -> list[tuple[str, list[str]]]:
    each = list(measured)
    return [
        ("rounds, a run", [f"{m.rounds / m.runs:,.1f}" for m in each]),
        ("partitions moved, a run", [f"{m.moved / m.runs:,.1f}" for m in each]),
        ("times without an owner, a run", [f"{len(m.gaps_ms) / m.runs:,.1f}" for m in each]),
        ("unowned, p50", [duration(m.unowned_ms(0.5)) for m in each]),
        ("unowned, p99", [duration(m.unowned_ms(0.99)) for m in each]),
        ("unowned, longest", [duration(m.unowned_ms(1.0)) for m in each]),
        ("partition-time unowned, a run", [duration(sum(m.gaps_ms) / m.runs) for m in each]),
        ("records read again, a run", [f"{m.repeated / m.runs:,.1f}" for m in each]),
    ]


def measured_as_dict(measured: Measured) -> dict[str, object]:
    """Return the measurements of a scenario under a protocol as a JSON object."""
    return {
        "protocol": measured.protocol,
        "runs": measured.runs,
        "rounds": measured.rounds,
        "partitions_moved": measured.moved,
        "times_unowned": len(measured.gaps_ms),
        "unowned_p50_ms": measured.unowned_ms(0.5),
        "unowned_p99_ms": measured.unowned_ms(0.99),
        "unowned_longest_ms": measured.unowned_ms(1.0),
        "unowned_total_ms": sum(measured.gaps_ms),
        "repeated": measured.repeated,
        "verdicts": list(measured.verdicts),
    }
