"""The live panel: the simulated date, the counters, and one row per partition."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta

from msgspec import Struct
from rich.box import SIMPLE
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kohort.observe.timeline import OwnershipTimeline
from kohort.types import TopicPartition

NEW_YEAR = date(2013, 1, 1)
NO_OWNER = "·"
COLORS = ("blue", "yellow", "green")


class Counters(Struct, frozen=True):
    """The figures at the top of the panel.

    Attributes:
        day: Day of 2013 the replay has reached, 0 to 364.
        published: Flights sent to the topic so far.
        read: Flights that the applications report as read.
        committed: Sum of the group's committed offsets.
        total: Total number of flights.
        visible: Flights visible to a reader of the table.
        snapshots: Table snapshots that the reader has checked; None without a region.
        is_wrong: Whether a snapshot was not a consistent cut.
    """

    day: int
    published: int
    read: int
    committed: int
    total: int
    visible: int = 0
    snapshots: int | None = None
    is_wrong: bool = False

    @property
    def lag(self) -> int:
        """Flights published but not yet committed by the group."""
        return max(self.published - self.committed, 0)


class DemoPanel:
    """Renders the state of the demo; its only state of its own is the width."""

    def __init__(
        self, applications: tuple[str, ...], what: str, protocol: str, console: Console
    ) -> None:
        """Prepare a panel.

        Args:
            applications: Names of the applications, in the order of their colours.
            what: Name for all of them together.
            protocol: How they share the partitions, in one line.
            console: The console that shows it.
        """
        self._console = console
        self._what = what
        self._protocol = protocol
        self._letters = {
            name: Text(name[0].upper(), style=f"bold {COLORS[i % len(COLORS)]}")
            for i, name in enumerate(applications)
        }

    def render(
        self, act: str, counters: Counters, timeline: OwnershipTimeline, now_ms: int
    ) -> RenderableType:
        """Return the current view."""
        return Panel(
            Group(self._head(act, counters), Text(), self._rows(timeline, now_ms), self._legend()),
            title=f"kohort: one {self._what}, three applications",
            subtitle=self._protocol,
            border_style="dim",
        )

    def _head(self, act: str, counters: Counters) -> RenderableType:
        grid = Table.grid(padding=(0, 3))
        day = NEW_YEAR + timedelta(days=max(counters.day, 0))
        grid.add_row(
            Text(f"{day:%d %b %Y}", style="bold"),
            f"published {counters.published:>7,}",
            f"read {counters.read:>7,}",
            f"lag {counters.lag:>6,}",
        )
        lines: list[RenderableType] = [grid]
        if counters.snapshots is not None:
            lines.append(_reader(counters))
        return Group(*lines, Text(act, style="italic"))

    def _rows(self, timeline: OwnershipTimeline, now_ms: int) -> RenderableType:
        grid = Table.grid(padding=(0, 1))
        width = max(self._console.width - 24, 20)
        for partition in timeline.partitions:
            label = Text(f"partition {partition.partition}", style="dim")
            grid.add_row(label, self._history(timeline, partition, now_ms, width))
        return grid

    def _history(
        self, timeline: OwnershipTimeline, partition: TopicPartition, now_ms: int, width: int
    ) -> Text:
        seconds = (now_ms - timeline.start_ms) // 1000 + 1
        row = Text(no_wrap=True)
        for second in range(max(seconds - width, 0), seconds):
            owner = timeline.owner_at(partition, timeline.start_ms + second * 1000 + 999)
            row.append_text(self._letters.get(owner or "", Text(NO_OWNER, style="red")))
        return row

    def _legend(self) -> RenderableType:
        parts = Text("one column a second   ", style="dim")
        for name, letter in self._letters.items():
            parts.append_text(letter)
            parts.append(f" {name}   ", style="dim")
        parts.append(NO_OWNER, style="red")
        parts.append(" no owner", style="dim")
        return parts


def _reader(counters: Counters) -> Text:
    text = Text(f"a reader sees {counters.visible:,} flights in the table; ", style="dim")
    if counters.is_wrong:
        text.append("its next snapshot was not a consistent cut", style="bold red")
    else:
        text.append(f"{counters.snapshots:,} snapshots checked, all consistent cuts", style="green")
    return text


def carrier_table(rows: Mapping[str, tuple[int, float, int, float]]) -> Table:
    """Return the closing table: figures by carrier, from Spark SQL and from the data set.

    Args:
        rows: Carrier to (flights, mean delay in minutes) of the table, then of the data set.
    """
    title = "Flights and mean departure delay (minutes)"
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False)
    table.add_column("carrier")
    for heading in ("flights: table", "CSV", "delay: table", "CSV"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for carrier, (flights, delay, flights_csv, delay_csv) in sorted(rows.items()):
        same = (flights, delay) == (flights_csv, delay_csv)
        mark = Text("=", style="green") if same else Text("differs", style="bold red")
        table.add_row(
            carrier, f"{flights:,}", f"{flights_csv:,}", f"{delay:.2f}", f"{delay_csv:.2f}", mark
        )
    return table
