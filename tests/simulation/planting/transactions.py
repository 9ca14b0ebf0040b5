"""Bugs planted into transactions: every row of the coordinator's table and of the producer's.

A bug is caught when a history that passes without it breaks a rule (X1 to X8).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from kohort.client.producer.transactions.machine import TRANSACTION as PRODUCER
from kohort.group.transactions.table import TRANSACTION as COORDINATOR
from kohort.simulation.coverage import AnyTable
from kohort.simulation.transactions.world import OK, TransactionScenario, run
from tests.simulation.planting.rows import Bug, row_bugs

TABLES = cast("tuple[AnyTable, ...]", (COORDINATOR, PRODUCER))
_HARMLESS = frozenset({"nothing", "ignore", "never"})


def bugs() -> Iterator[Bug]:
    """Yield all bugs."""
    for table in TABLES:
        for index in range(len(table.rows)):
            yield from row_bugs(table, index, _HARMLESS)


def caught_by(bug: Bug, scenarios: Iterable[TransactionScenario]) -> tuple[str, int]:
    """Run histories until a rule is broken; return the rule, and the seed.

    The rule is empty when the bug survives.
    """
    with bug.plant():
        for each in scenarios:
            outcome = run(each)
            if outcome.verdict != OK:
                return outcome.verdict, each.seed
    return "", -1
