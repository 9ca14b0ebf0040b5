"""Write the outcome of each event in each state of a machine to tests/group/outcomes/*.json."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.group.outcomes import (  # noqa: E402  # found by the line above
    consumer_group,
    consumer_member,
    coordinator,
    draft_group,
    draft_member,
    member,
    shard,
)

FOLDER = ROOT / "tests" / "group" / "outcomes"
MACHINES = {
    "classic-group": coordinator.table,
    "classic-member": member.table,
    "consumer-group": consumer_group.table,
    "consumer-member": consumer_member.table,
    "coordinator-shard": shard.table,
    "draft-group": draft_group.table,
    "draft-member": draft_member.table,
}


def text(table: Mapping[str, Mapping[str, str]]) -> str:
    """Return a table as file content: one line per event, so that a change affects one line."""
    return json.dumps(table, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write one file for each machine."""
    for name, table in MACHINES.items():
        (FOLDER / f"{name}.json").write_text(text(table()), encoding="utf-8")


if __name__ == "__main__":
    main()
