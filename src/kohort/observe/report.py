"""The history of a group as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from msgspec import Struct

_STYLE = """
:root { color-scheme: light; --ink: #1c1f23; --dim: #5c6570; --line: #dfe3e8; --good: #0b7a4b;
  --bad: #b3261e; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: #fff; margin: 0 auto;
  max-width: 1040px; padding: 32px 24px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 36px 0 8px; }
p { margin: 4px 0 12px; } .dim { color: var(--dim); }
.verdict { font-weight: 600; padding: 12px 16px; border-radius: 8px; border: 1px solid; }
.good { color: var(--good); } .bad { color: var(--bad); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { color: var(--dim); font-weight: 500; } td.number, th.number { text-align: right; }
figure { margin: 8px 0; overflow-x: auto; } svg { width: 100%; height: auto; min-width: 720px; }
"""


class Section(Struct, frozen=True):
    """A part of a report: a heading, a sentence, and a table or picture.

    Attributes:
        title: Heading.
        text: A sentence that describes the content and where it was observed.
        columns: Headings of the table; a heading that starts with `#` marks a column of numbers.
        rows: Cells of the table, as text.
        svg: A picture to show above the table.
    """

    title: str
    text: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    svg: str = ""


def render(title: str, subtitle: str, verdict: str, good: bool, sections: Sequence[Section]) -> str:
    """Return the page.

    Args:
        title: Heading of the page.
        subtitle: The run, and its time.
        verdict: The outcome in a sentence.
        good: Whether the outcome is good.
        sections: The parts, in order.
    """
    tone = "good" if good else "bad"
    body = "\n".join(_section(section) for section in sections)
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        f'<h1>{escape(title)}</h1>\n<p class="dim">{escape(subtitle)}</p>\n'
        f'<p class="verdict {tone}">{escape(verdict)}</p>\n{body}\n</body></html>\n'
    )


def _section(section: Section) -> str:
    parts = [f"<h2>{escape(section.title)}</h2>"]
    if section.text:
        parts.append(f'<p class="dim">{escape(section.text)}</p>')
    if section.svg:
        parts.append(f"<figure>{section.svg}</figure>")
    if section.columns:
        parts.append(_table(section.columns, section.rows))
    return "\n".join(parts)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    classes = [' class="number"' if name.startswith("#") else "" for name in columns]
    head = "".join(
        f"<th{kind}>{escape(name.lstrip('#'))}</th>"
        for name, kind in zip(columns, classes, strict=True)
    )
    lines = [f"<table><thead><tr>{head}</tr></thead><tbody>"]
    for row in rows:
        cells = zip(row, classes, strict=True)
        lines.append("<tr>" + "".join(f"<td{k}>{escape(c)}</td>" for c, k in cells) + "</tr>")
    return "\n".join([*lines, "</tbody></table>"])
