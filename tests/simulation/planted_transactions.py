"""Find for each bug of the transactions' tables the first history that catches it.

`python -m tests.simulation.planted_transactions` writes tests/planted/transactions.json: the rule
and the seed, or nothing for a bug that survives. What was found before is looked at first.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kohort.simulation.transactions.world import drawn
from tests.simulation.planting.transactions import bugs, caught_by

FILE = Path(__file__).parents[1] / "planted" / "transactions.json"
SEEDS = 2_500


def main() -> None:
    before = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    found = {}
    for bug in bugs():
        _, last = before.get(bug.name, ("", -1))
        seeds = [*([last] if last >= 0 else []), *range(SEEDS)]
        rule, seed = caught_by(bug, map(drawn, seeds))
        found[bug.name] = [rule, seed]
        sys.stdout.write(f"{rule or 'survives'} {seed} {bug.name}\n")
        sys.stdout.flush()
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
