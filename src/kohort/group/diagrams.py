"""Diagrams and lists of the machines, drawn from their tables; `tools/diagrams.py` writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from kohort.group.coordinator.classic.table import CLASSIC_GROUP
from kohort.group.coordinator.draft.table import DRAFT_GROUP
from kohort.group.coordinator.lifecycle import SHARD
from kohort.group.machine import Decision, Row, Table
from kohort.group.member.classic.table import CLASSIC_MEMBER
from kohort.group.member.consumer.table import CONSUMER_MEMBER
from kohort.group.member.draft.table import DRAFT_MEMBER
from kohort.group.transactions.table import TRANSACTION

S = TypeVar("S", bound=Enum)
D = TypeVar("D", bound=Decision[Enum])

_RULE_ID = re.compile(r"\b[CDKLAB]\d{1,2}\b")


def mermaid(table: Table[S, D]) -> str:
    """Return a state diagram; an arrow is labelled with all its triggers."""
    lines = ["stateDiagram-v2", "    direction TB"]
    for (before, after), triggers in _arrows(table).items():
        label = ", ".join(triggers)
        lines.append(f"    {before.name} --> {after.name}: {label}")
    return "\n".join(lines)


def dot(table: Table[S, D]) -> str:
    """Return the state diagram for Graphviz."""
    lines = [f'digraph "{table.name}" {{', "    node [shape=box, style=rounded];"]
    lines += [f"    {state.name};" for state in table.states]
    for (before, after), triggers in _arrows(table).items():
        label = "\\n".join(triggers)
        lines.append(f'    {before.name} -> {after.name} [label="{label}"];')
    return "\n".join([*lines, "}"])


def _arrows(table: Table[S, D]) -> dict[tuple[S, S], list[str]]:
    arrows: dict[tuple[S, S], list[str]] = {}
    for line in table.rows:
        for before in line.states:
            for after in line.to:
                names = arrows.setdefault((before, after), [])
                if before is not after and line.trigger.__name__ not in names:
                    names.append(line.trigger.__name__)
    return {ends: names for ends, names in arrows.items() if names}


def page(table: Table[S, D]) -> str:
    """Return the diagram and all rows of a machine as Markdown."""
    rows = "\n".join(_markdown_row(line) for line in table.rows if line.action != "never")
    return f"""# {table.name.capitalize()}

Drawn from the transition table by `python tools/diagrams.py`.

```mermaid
{mermaid(table)}
```

| in state | upon | if | do | then in | rule |
|---|---|---|---|---|---|
{rows}
"""


def _markdown_row(line: Row[S, D]) -> str:
    states = ", ".join(state.name for state in line.states)
    after = ", ".join(state.name for state in line.to)
    rule = _RULE_ID.sub(_linked, line.rule)
    cells = (states, line.trigger.__name__, line.condition, line.action, after, rule)
    return f"| {' | '.join(cell or ' ' for cell in cells)} |"


def _linked(found: re.Match[str]) -> str:
    """Link a rule to its definition; the draft protocol has its own page."""
    document = "draft.md" if found[0].startswith("D") else "rules.md"
    return f"[{found[0]}](../{document}#{found[0].lower()})"


INDEX = """# Diagrams

The state machines, drawn from their transition tables by `python tools/diagrams.py`:

- at the coordinator: [the shard](coordinator-shard.md), which holds groups;
  [a classic group](classic-group.md); [a group of the draft protocol](draft-group.md);
  [a transactional producer](transaction.md);
- in the client: [the classic member](classic-member.md);
  [the member of KIP-848](consumer-member.md);
  [the member of the draft protocol](draft-member.md).

[The architecture](../architecture.md) says how a machine runs.
"""


def pages() -> Mapping[str, str]:
    """Return the text of each file, by its name."""
    return {
        "README.md": INDEX,
        "coordinator-shard.md": page(SHARD),
        "classic-group.md": page(CLASSIC_GROUP),
        "classic-member.md": page(CLASSIC_MEMBER),
        "consumer-member.md": page(CONSUMER_MEMBER),
        "draft-group.md": page(DRAFT_GROUP),
        "draft-member.md": page(DRAFT_MEMBER),
        "transaction.md": page(TRANSACTION),
    }
