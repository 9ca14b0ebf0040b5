"""The end of the demo: the verdict on the screen, in JSON, and in the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from kohort.demo.flights import CarrierFigures
from kohort.demo.panel import carrier_table
from kohort.demo.settings import APPLICATIONS, DemoSettings, GroupProtocol
from kohort.demo.verdict import SnapshotFacts, TableFacts, Verdict
from kohort.errors import ConfigError
from kohort.observe.rebalances import Rebalance, describe_moves
from kohort.observe.report import Section, render
from kohort.observe.svg import Marker, draw
from kohort.observe.timeline import OwnershipTimeline


class GroupOffset(Struct, frozen=True):
    """The offsets of one partition of the group, as read by another client.

    Attributes:
        partition: Number of the partition.
        committed: The group's offset.
        end: Offset after the last record.
    """

    partition: int
    committed: int
    end: int

    @property
    def lag(self) -> int:
        """Number of records that the group has not committed."""
        return self.end - self.committed


class Outcome(Struct, frozen=True):
    """All results that the demo reports at the end."""

    settings: DemoSettings
    verdict: Verdict
    facts: TableFacts
    expected: Mapping[str, CarrierFigures]
    timeline: OwnershipTimeline
    rebalances: tuple[Rebalance, ...]
    markers: tuple[Marker, ...]
    end_ms: int
    offsets: tuple[GroupOffset, ...]
    reread: int
    seconds: float
    table_read_by: str
    ownership_seen_by: str
    snapshots: SnapshotFacts | None = None

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        if not self.verdict.passed:
            return "Failed: " + "; ".join(self.verdict.reasons) + "."
        said = (
            f"Exactly once: {self.facts.distinct:,} flights, lost 0, twice in the table 0, "
            f"re-read after the kill {self.reread:,}."
        )
        if self.snapshots is not None:
            said += f" All {self.snapshots.snapshots:,} snapshots were consistent cuts."
        return said


def show(outcome: Outcome, console: Console) -> None:
    """Print the closing tables, the verdict and suggestions."""
    console.print(carrier_table(_figures(outcome)))
    console.print(_rebalance_table(outcome))
    committed = sum(offset.committed for offset in outcome.offsets)
    lag = sum(offset.lag for offset in outcome.offsets)
    console.print(f"\nGroup as confluent-kafka reads it: committed {committed:,}, lag {lag:,}")
    for name in APPLICATIONS:
        console.print(f"  {name} wrote {outcome.facts.read_by.get(name, 0):,} flights")
    if outcome.snapshots is not None:
        console.print(f"{_told_snapshots(outcome.snapshots)}")
    style = "bold green" if outcome.verdict.passed else "bold red"
    console.print(f"\n{outcome.sentence}", style=style, highlight=False)
    console.print(f"{outcome.seconds:.0f} s. Report: {outcome.settings.out / 'report.html'}\n")
    _next_steps(outcome, console)


def _told_snapshots(seen: SnapshotFacts) -> str:
    resets = "1 reset" if seen.resets == 1 else f"{seen.resets} resets"
    return (
        f"Region: {seen.checkpoints:,} checkpoints, {resets}; "
        f"a reader checked {seen.snapshots:,} snapshots of the table meanwhile"
    )


def _rebalance_table(outcome: Outcome) -> Table:
    title = f"\nRebalances, as seen by {outcome.ownership_seen_by}"
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False)
    table.add_column("at", justify="right", no_wrap=True)
    table.add_column("cause")
    table.add_column("moved")
    table.add_column("longest gap", justify="right", no_wrap=True)
    table.add_column("what stayed stood still", justify="right")
    for row in _rebalance_rows(outcome):
        table.add_row(*row)
    return table


def _next_steps(outcome: Outcome, console: Console) -> None:
    console.print("Try next:")
    for line in (
        f"open {outcome.settings.out / 'report.html'}",
        *_without_region(outcome),
        "kohort demo --quick --sabotage   # commits too early: watch it lose flights, exit 1",
        *_other_protocol(outcome.settings.group_protocol),
        "kohort broker --data ./data      # an empty broker of your own on a free port",
    ):
        console.print(f"  {line}", highlight=False)


def _without_region(outcome: Outcome) -> list[str]:
    if outcome.snapshots is None:
        return []
    return ["kohort demo --quick --no-region   # a group alone: each commits for itself"]


def _other_protocol(shown: GroupProtocol) -> list[str]:
    if shown is not GroupProtocol.CLASSIC:
        return []
    return ["kohort demo --quick --group-protocol consumer   # KIP-848: the rest continues"]


def as_dict(outcome: Outcome) -> dict[str, object]:
    """Return the outcome for `--json`."""
    return {
        "passed": outcome.verdict.passed,
        "reasons": list(outcome.verdict.reasons),
        "group_protocol": outcome.settings.group_protocol.value,
        "flights": outcome.facts.distinct,
        "lost": outcome.verdict.lost,
        "twice": outcome.verdict.twice,
        "reread": outcome.reread,
        "seconds": round(outcome.seconds, 1),
        "written_by": dict(outcome.facts.read_by),
        "rebalances": [
            {
                "generation": rebalance.generation,
                "member": rebalance.member,
                "cause": rebalance.cause,
                "moved": len(rebalance.moves),
                "longest_gap_ms": rebalance.longest_gap_ms,
                "longest_stop_ms": rebalance.longest_stop_ms,
            }
            for rebalance in outcome.rebalances
        ],
        "lag": sum(offset.lag for offset in outcome.offsets),
        "region": None if outcome.snapshots is None else _as_dict(outcome.snapshots),
    }


def _as_dict(seen: SnapshotFacts) -> dict[str, object]:
    return {
        "snapshots": seen.snapshots,
        "wrong": seen.wrong or None,
        "checkpoints": seen.checkpoints,
        "resets": seen.resets,
    }


def write_files(outcome: Outcome) -> None:
    """Write `timeline.svg` and `report.html` into the demo's folder."""
    svg = draw(outcome.timeline, outcome.end_ms, APPLICATIONS, outcome.markers)
    (outcome.settings.out / "timeline.svg").write_text(svg, encoding="utf-8")
    (outcome.settings.out / "report.html").write_text(_page(outcome, svg), encoding="utf-8")


def _page(outcome: Outcome, svg: str) -> str:
    kind = "Python applications" if outcome.settings.quick else "Spark applications"
    sections = [
        Section(
            "Who owned which partition",
            f"As seen by {outcome.ownership_seen_by}. The grey stretches are unowned.",
            svg=svg,
        ),
        Section(
            "Rebalances",
            "What caused each, what moved, the longest time a partition had no owner, and the same "
            "of those that stayed with their owner.",
            ("at", "cause", "moved", "#longest gap", "#what stayed stood still"),
            _rebalance_rows(outcome),
        ),
        Section(
            "Flights and mean departure delay",
            f"The table as read by {outcome.table_read_by}, beside the same figures from the CSV.",
            ("carrier", "#flights, table", "#flights, CSV", "#delay, table", "#delay, CSV"),
            _carrier_rows(outcome),
        ),
        Section(
            "Offsets of the group",
            "As read by confluent-kafka after the end.",
            ("partition", "#committed", "#end", "#lag"),
            [(str(o.partition), str(o.committed), str(o.end), str(o.lag)) for o in outcome.offsets],
        ),
    ]
    if outcome.snapshots is not None:
        sections.insert(2, _snapshot_section(outcome.snapshots))
    protocol = outcome.settings.group_protocol.description
    what = "group" if outcome.snapshots is None else "consistent region"
    subtitle = (
        f"336,776 flights of 2013, one {what}, three {kind}; {protocol}; {outcome.seconds:.0f} s"
    )
    title = f"kohort demo: one {what}, three applications"
    return render(title, subtitle, outcome.sentence, outcome.verdict.passed, sections)


def _snapshot_section(seen: SnapshotFacts) -> Section:
    return Section(
        "Snapshots of the table while it was written",
        "Each version of the table was compared with the topic and the CSV: of each partition the "
        "flights from the first one on, each once, with the minutes that its aircraft had left "
        f"late until then. {seen.wrong or 'All were consistent cuts'}.",
        ("#checkpoints", "#resets", "#snapshots looked at", "#flights in the last one"),
        [(str(seen.checkpoints), str(seen.resets), str(seen.snapshots), f"{seen.last:,}")],
    )


def _figures(outcome: Outcome) -> dict[str, tuple[int, float, int, float]]:
    empty = CarrierFigures(0, 0, 0)
    rows: dict[str, tuple[int, float, int, float]] = {}
    for carrier in {*outcome.expected, *outcome.facts.figures}:
        found = outcome.facts.figures.get(carrier, empty)
        wanted = outcome.expected.get(carrier, empty)
        rows[carrier] = (found.flights, found.mean_delay, wanted.flights, wanted.mean_delay)
    return rows


def _carrier_rows(outcome: Outcome) -> list[tuple[str, str, str, str, str]]:
    return [
        (carrier, f"{flights:,}", f"{flights_csv:,}", f"{delay:.2f}", f"{delay_csv:.2f}")
        for carrier, (flights, delay, flights_csv, delay_csv) in sorted(_figures(outcome).items())
    ]


def _rebalance_rows(outcome: Outcome) -> list[tuple[str, str, str, str, str]]:
    start = outcome.timeline.start_ms
    return [
        (
            f"{(rebalance.start_ms - start) / 1000:6.1f} s",
            f"{rebalance.member}: {rebalance.cause}".removeprefix(": "),
            describe_moves(rebalance.moves),
            f"{rebalance.longest_gap_ms / 1000:.1f} s",
            "-" if rebalance.longest_stop_ms is None else f"{rebalance.longest_stop_ms} ms",
        )
        for rebalance in outcome.rebalances
    ]


def demo_folder(out: Path) -> Path:
    """Return the folder of the demo's files, emptied.

    It removes only files of an earlier demo, and refuses a folder that contains any others.
    """
    marker = out / ".kohort-demo"
    if out.exists() and any(out.iterdir()):
        if not marker.exists():
            raise ConfigError(f"{out} is not a folder of this demo; name another with --out")
        _remove(out)
    out.mkdir(parents=True, exist_ok=True)
    marker.touch()
    return out


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder)
