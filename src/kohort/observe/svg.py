"""Draws an ownership timeline as SVG: rows are partitions, colours owners, gaps unowned time.

A partition that one member learns while another owns it (`kohort.streams`) is a hatched bar.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from msgspec import Struct

from kohort.observe.timeline import OwnershipTimeline, Span
from kohort.types import TopicPartition

# Distinguishable with the common forms of colour blindness (Okabe and Ito, 2008).
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")

_LEFT, _TOP, _ROW, _WIDTH = 96, 40, 26, 860


class Marker(Struct, frozen=True):
    """A moment marked by a vertical line.

    Attributes:
        at_ms: The time, on the clock of the timeline.
        label: A few words.
    """

    at_ms: int
    label: str


def owner_colors(owners: Sequence[str]) -> dict[str, str]:
    """Assign each owner a colour, in order; colours repeat after seven."""
    return {owner: PALETTE[i % len(PALETTE)] for i, owner in enumerate(owners)}


def draw(
    timeline: OwnershipTimeline,
    until_ms: int,
    owners: Sequence[str],
    markers: Sequence[Marker] = (),
    *,
    learners: OwnershipTimeline | None = None,
    rows: str = "partition ",
) -> str:
    """Return the timeline as an SVG document.

    Args:
        timeline: The timeline of the partitions to draw.
        until_ms: End of the picture on the timeline's clock.
        owners: Owners in the order of the legend.
        markers: Moments to mark.
        learners: The learners of partitions, on the same clock; None for no member.
        rows: Prefix of a row's partition number, if only one topic is drawn.
    """
    picture = _Picture(timeline, until_ms, owner_colors(owners), learners, rows)
    height = picture.bottom + 64
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 24} {height}"'
        ' font-family="system-ui, sans-serif" font-size="12" role="img"'
        ' aria-label="Owner of each partition over time">'
    )
    parts = [
        head,
        f'<rect width="100%" height="{height}" fill="#ffffff"/>',
        *picture.hatches(),
        *picture.legend(),
        *picture.rows(),
        *picture.axis(),
        *picture.marks(markers),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Picture:
    def __init__(
        self,
        timeline: OwnershipTimeline,
        until_ms: int,
        colors: dict[str, str],
        learners: OwnershipTimeline | None,
        rows: str,
    ) -> None:
        self.timeline = timeline
        self.until_ms = until_ms
        self.colors = colors
        self.learners = learners
        self.prefix = rows
        self.bottom = _TOP + _ROW * len(timeline.partitions)

    def x(self, at_ms: int) -> float:
        total = max(self.until_ms - self.timeline.start_ms, 1)
        return round(_LEFT + _WIDTH * (at_ms - self.timeline.start_ms) / total, 1)

    def label(self, partition: TopicPartition) -> str:
        """Return the label of a row, with the topic only if there are several."""
        if len({each.topic for each in self.timeline.partitions}) == 1:
            return f"{self.prefix}{partition.partition}"
        return f"{partition.topic}-{partition.partition}"

    def legend(self) -> list[str]:
        parts = []
        x = _LEFT
        for owner, color in [*self.colors.items(), ("no owner", "none")]:
            stroke = ' stroke="#999999" stroke-dasharray="2 2"' if color == "none" else ""
            parts.append(f'<rect x="{x}" y="12" width="14" height="14" fill="{color}"{stroke}/>')
            parts.append(f'<text x="{x + 20}" y="24" fill="#222222">{escape(owner)}</text>')
            x += 44 + 8 * len(owner)
        if self.learners is not None:
            text = "hatched: learns, while the owner continues"
            parts.append(f'<text x="{x}" y="24" fill="#222222">{text}</text>')
        return parts

    def hatches(self) -> list[str]:
        """Return a pattern of stripes for each colour."""
        if self.learners is None:
            return []
        stripes = (
            f'<pattern id="learns-{color[1:]}" width="6" height="6" patternUnits="userSpaceOnUse"'
            f' patternTransform="rotate(45)"><rect width="3" height="6" fill="{color}"/></pattern>'
            for color in sorted(set(self.colors.values()))
        )
        return ["<defs>", *stripes, "</defs>"]

    def rows(self) -> list[str]:
        parts = []
        for index, partition in enumerate(self.timeline.partitions):
            y = _TOP + _ROW * index
            label = self.label(partition)
            parts.append(
                f'<text x="{_LEFT - 8}" y="{y + 17}" text-anchor="end" fill="#222222">'
                f"{escape(label)}</text>"
            )
            parts.extend(
                self.bar(span, y) for span in self.timeline.spans(partition, self.until_ms)
            )
            parts.extend(self.learned(partition, y))
        return parts

    def learned(self, partition: TopicPartition, y: int) -> list[str]:
        """Return the hatched bars of a row, on the lower half of its bars."""
        if self.learners is None:
            return []
        parts = []
        for span in self.learners.spans(partition, self.until_ms):
            if span.owner is not None:
                x, half = self.x(span.start_ms), (_ROW - 6) // 2
                width = max(self.x(span.end_ms) - x, 2)
                place = f'x="{x}" y="{y + 3 + half}" width="{width:.1f}" height="{half}"'
                fill = f"url(#learns-{self.colors[span.owner][1:]})"
                what = f"{span.owner} learns: {span.duration_ms / 1000:.1f} s"
                parts.append(f'<rect {place} fill="#ffffff"/>')
                parts.append(f'<rect {place} fill="{fill}"><title>{escape(what)}</title></rect>')
        return parts

    def bar(self, span: Span, y: int) -> str:
        x, width = self.x(span.start_ms), max(self.x(span.end_ms) - self.x(span.start_ms), 0.5)
        start = (span.start_ms - self.timeline.start_ms) / 1000
        what = f"{span.owner or 'no owner'}: from {start:.1f} s, {span.duration_ms / 1000:.1f} s"
        fill = self.colors.get(span.owner or "", "#f4f4f4")
        return (
            f'<rect x="{x}" y="{y + 3}" width="{width:.1f}" height="{_ROW - 6}" fill="{fill}">'
            f"<title>{escape(what)}</title></rect>"
        )

    def axis(self) -> list[str]:
        seconds = max((self.until_ms - self.timeline.start_ms) // 1000, 1)
        step = next((s for s in (1, 2, 5, 10, 20, 30, 60, 120, 300) if seconds / s <= 12), 600)
        parts = []
        for second in range(0, seconds + 1, step):
            x = self.x(self.timeline.start_ms + second * 1000)
            parts.append(
                f'<line x1="{x}" y1="{_TOP}" x2="{x}" y2="{self.bottom}" stroke="#dddddd"'
                ' stroke-width="0.5"/>'
            )
            parts.append(
                f'<text x="{x}" y="{self.bottom + 16}" text-anchor="middle" fill="#555555">'
                f"{second} s</text>"
            )
        return parts

    def marks(self, markers: Sequence[Marker]) -> list[str]:
        parts = []
        for index, marker in enumerate(markers):
            x = self.x(marker.at_ms)
            # Two lines of labels, so that neighbours do not overlap.
            y = self.bottom + 34 + 16 * (index % 2)
            parts.append(
                f'<line x1="{x}" y1="{_TOP - 6}" x2="{x}" y2="{y - 10}" stroke="#222222"'
                ' stroke-width="1" stroke-dasharray="3 3"/>'
            )
            anchor = "end" if x > _LEFT + _WIDTH - 120 else "start"
            parts.append(
                f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="#222222">'
                f"{escape(marker.label)}</text>"
            )
        return parts
