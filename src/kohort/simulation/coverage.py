"""Coverage of the tables' rows: a simulation proves nothing about rows that never run.

`must_hit` lists what the test suite's seeds together must reach: every row of every table, except
those that must not be reached, and the rare events of `RARE`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from typing import TypeAlias

from kohort.group.coordinator.classic.table import CLASSIC_GROUP
from kohort.group.coordinator.draft.table import DRAFT_GROUP
from kohort.group.coordinator.lifecycle import SHARD
from kohort.group.machine import D, Decision, Row, S, Table, cells_of
from kohort.group.member.classic.table import CLASSIC_MEMBER
from kohort.group.member.consumer.table import CONSUMER_MEMBER
from kohort.group.member.draft.table import DRAFT_MEMBER
from kohort.values import replace

AnyTable: TypeAlias = "Table[Enum, Decision[Enum]]"
AnyRow: TypeAlias = "Row[Enum, Decision[Enum]]"

TABLES: tuple[AnyTable, ...] = (  # type: ignore[assignment]  # each has its own states, and here only rows are looked at
    SHARD,
    CLASSIC_GROUP,
    CLASSIC_MEMBER,
    CONSUMER_MEMBER,
    DRAFT_GROUP,
    DRAFT_MEMBER,
)

# Rare events that the world notes.
RARE = (
    "AssignmentAsked",
    "AssignorFellBack",
    "assignor gave garbage",
    "append failed",
    "assignor raised",
    "call refused",
    "commit failed",
    "compaction",
    "compaction while loading",
    "coordinator died after a reply",
    "coordinator died after append",
    "coordinator died before append",
    "coordinator died in append",
    "error raised",
    "group became classic",
    "group became consumer",
    "injected error",
    "job failed",
    "log damage: bit flip",
    "log damage: lost end",
    "member died after sends",
    "member died before",
    "request repeated",
)

_ALONE = "a group back from KIP-848 has no leader for a moment, and must be loaded just then"
_YOURS = "only assignors of applications are asked by a job; tests/testing brings some"
_SLOW = "an answer must be slower than a whole rebalance, in the same life of the member"
_ODD = "the coordinator never sends this answer; the tests of the member do"

# Rows that the test suite's seeds need not take, by the end of their label, with the reason.
# All of them are taken by the tests of `tests/group`.
NOT_REQUIRED: dict[str, str] = {
    "PREPARING_REBALANCE JobDone [is_failed] -> cannot_speak": _YOURS,
    "PREPARING_REBALANCE JobDone -> join_as_said": _YOURS,
    "JobDone [has_failed] -> ask_later": _YOURS,
    "JobDone [is_said] -> note_said": _YOURS,
    "LoadFinished [was_never_led] -> begin_again": _ALONE,
    "NONE,PREPARE_FOR_REBALANCE,STEADY DraftJobDone -> pass_over": _SLOW,
    "JoinGroupResponse [says_none] -> refuse_generation": _ODD,
    "ConsumerGroupHeartbeatResponse [is_nonsense] -> beat_later": _ODD,
    "ConsumerGroupHeartbeatResponse [says_tell_and_wait] -> tell_and_try_again": _ODD,
    "ASSIGNING CommitAnswered [says_rejoin] -> follow_later": _SLOW,
    "CommitAnswered [says_find_coordinator] -> find_and_join": _SLOW,
    "CommitAnswered [sent_good_bye_in_vain] -> leave_unheard": _SLOW,
    "CoordinatorLost -> note_no_coordinator": _SLOW,
    "UNSUBSCRIBED,FENCED,FATAL,STALE CoordinatorLost -> forget_coordinator": _SLOW,
    "DOWN,CLOSED,FATAL,LEAVING CoordinatorLost -> forget": _SLOW,
    "PREPARE_LEAVING ConsumerGroupHeartbeatResponse [says_rejoin] -> lose_membership": _SLOW,
}


def label(table: AnyTable, line: AnyRow) -> str:
    """Return a row's name: states, trigger, guard and action."""
    states = ",".join(state.name for state in line.states)
    guard = f" [{line.condition}]" if line.condition else ""
    return f"{table.name}: {states} {line.trigger.__name__}{guard} -> {line.action}"


def must_hit() -> list[str]:
    """Return the labels of all rows that the seeds together must take."""
    labels = [label(table, line) for table in TABLES for line in table.rows if not is_never(line)]
    return [each for each in labels if not each.endswith(tuple(NOT_REQUIRED))]


def is_never(line: AnyRow) -> bool:
    """Return whether a row declares its trigger impossible in these states."""
    return line.action == "never"


@contextmanager
def substituted(table: Table[S, D], rows: Iterable[Row[S, D]]) -> Iterator[None]:
    """Run a table with other rows inside the context; the rows are not checked.

    Used to count rows, and to plant bugs that the simulation must find.
    """
    kept = table.rows, table.cells
    table.rows = tuple(rows)
    table.cells = cells_of(table.rows)
    try:
        yield
    finally:
        table.rows, table.cells = kept


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the rows that run inside the context, by label."""
    taken: Counter[str] = Counter()
    with ExitStack() as stack:
        for table in TABLES:
            rows = [_counting(line, label(table, line), taken) for line in table.rows]
            stack.enter_context(substituted(table, rows))
        yield taken


def _counting(line: AnyRow, name: str, taken: Counter[str]) -> AnyRow:
    handler = line.handler

    def count(draft: Decision[Enum], event: object) -> None:
        taken[name] += 1
        handler(draft, event)

    count.__name__ = line.action
    return replace(line, handler=count)
