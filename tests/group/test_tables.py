"""The tables themselves: complete, reachable, and the same as in the documents."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from kohort.errors import LocalProtocolError
from kohort.group import diagrams
from kohort.group.coordinator.classic.group import GroupState
from kohort.group.coordinator.classic.table import CLASSIC_GROUP
from kohort.group.coordinator.draft.table import DRAFT_GROUP
from kohort.group.coordinator.lifecycle import SHARD
from kohort.group.machine import Table, TableError, row
from kohort.group.member.classic.session import ClassicMemberState
from kohort.group.member.classic.table import CLASSIC_MEMBER
from kohort.group.member.consumer.session import ConsumerMemberState
from kohort.group.member.consumer.table import CONSUMER_MEMBER
from kohort.group.member.draft.table import DRAFT_MEMBER
from kohort.group.transactions.table import TRANSACTION
from kohort.group.transactions.transaction import TransactionState

DOCS = Path(__file__).parents[2] / "docs" / "internals" / "diagrams"
TABLES = [
    SHARD,
    CLASSIC_GROUP,
    CLASSIC_MEMBER,
    DRAFT_GROUP,
    DRAFT_MEMBER,
    CONSUMER_MEMBER,
    TRANSACTION,
]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_state_answers_every_trigger(table: Table[Any, Any]) -> None:
    for state in table.states:
        for trigger in table.total:
            assert table.cells[state, trigger][-1].guard is None


@pytest.mark.parametrize(
    ("table", "start"),
    [
        (CLASSIC_GROUP, GroupState.DEAD),
        (TRANSACTION, TransactionState.DEAD),
        (CLASSIC_MEMBER, ClassicMemberState.UNSUBSCRIBED),
        (CONSUMER_MEMBER, ConsumerMemberState.UNSUBSCRIBED),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_every_state_can_be_reached(table: Table[Any, Any], start: Enum) -> None:
    reached = {start}
    for _ in table.states:
        reached |= {to for line in table.rows for to in line.to if reached & set(line.states)}
    assert reached == set(table.states)


def test_c5_a_group_comes_only_from_where_kafka_allows() -> None:
    """Rows may pass through PREPARING at once; only their end counts."""
    allowed = {
        GroupState.EMPTY: {"PREPARING_REBALANCE", "STABLE", "COMPLETING_REBALANCE", "DEAD"},
        GroupState.PREPARING_REBALANCE: {"STABLE", "COMPLETING_REBALANCE", "EMPTY"},
        GroupState.COMPLETING_REBALANCE: {"PREPARING_REBALANCE", "STABLE", "EMPTY"},
        GroupState.STABLE: {"COMPLETING_REBALANCE"},
    }
    for line in CLASSIC_GROUP.rows:
        for after in line.to:
            if after in allowed and line.trigger.__name__ != "LoadFinished":
                before = {state.name for state in line.states if state is not after}
                assert before <= allowed[after], (line.action, after)


@pytest.mark.parametrize("name", sorted(diagrams.pages()))
def test_the_documents_show_the_tables(name: str) -> None:
    """Regenerate them with `python tools/diagrams.py` after a change of a table."""
    assert (DOCS / name).read_text(encoding="utf-8") == diagrams.pages()[name]


class Light(Enum):
    RED = 1
    GREEN = 2


class Press:
    pass


class Lamp:
    state = Light.RED


def turn_green(lamp: Lamp, _press: Press) -> None:
    lamp.state = Light.GREEN


def test_a_gap_is_an_error() -> None:
    with pytest.raises(TableError, match="GREEN does not answer Press"):
        Table("lamp", Light, [row(Light.RED, Press, turn_green, to=Light.GREEN)], total=[Press])


def test_a_row_that_only_sometimes_applies_leaves_a_gap() -> None:
    rows = [row((Light.RED, Light.GREEN), Press, turn_green, when=lambda _lamp, _press: False)]
    with pytest.raises(TableError, match="RED does not answer Press"):
        Table("lamp", Light, rows, total=[Press])


def test_a_row_behind_one_that_always_applies_is_an_error() -> None:
    line = row((Light.RED, Light.GREEN), Press, turn_green, to=Light.GREEN)
    with pytest.raises(TableError, match="never reached"):
        Table("lamp", Light, [line, line], total=[Press])


def test_a_row_that_ends_where_it_does_not_say_is_an_error() -> None:
    table = Table("lamp", Light, [row((Light.RED, Light.GREEN), Press, turn_green)], total=[Press])
    with pytest.raises(TableError, match="ended in GREEN"):
        table.run(Lamp(), Press, Press())


def test_a_call_without_a_row_is_refused() -> None:
    table: Table[Light, Lamp] = Table("lamp", Light, [], total=[], local=[Press])
    with pytest.raises(LocalProtocolError, match="Press is not allowed in RED"):
        table.run(Lamp(), Press, Press())
