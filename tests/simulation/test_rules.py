"""The registry of rules, the engine, and the log of the simulated cluster."""

from __future__ import annotations

import pytest

from kohort.group.coordinator.records import offset_record
from kohort.group.coordinator.state import LogState
from kohort.simulation.checkers import CHECKERS
from kohort.simulation.engine import Engine
from kohort.simulation.groups.log import GroupLog
from kohort.simulation.rules import RULES
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.messages.group_records import GroupRecord

SAFETY = {f"S{number}" for number in range(1, 19)} - {"S17"}
LIVENESS = {f"L{number}" for number in range(1, 9)}


def test_every_rule_has_a_checker() -> None:
    """S17 speaks of regions and Spark, which are not part of this simulation."""
    assert CHECKERS
    assert {rule.name for rule in RULES} == SAFETY | LIVENESS
    assert all(len(rule.text) > 10 and rule.function.__doc__ for rule in RULES)


class Process:
    alive = True
    paused_until = 0


def test_what_is_due_at_the_same_time_happens_in_the_order_it_was_asked_for() -> None:
    engine, seen = Engine(), list[int]()
    for number in (1, 2, 3):
        engine.at(10, None, seen.append, number)
    engine.at(5, None, seen.append, 0)
    engine.run(20)
    assert seen == [0, 1, 2, 3]
    assert engine.now == 20


def test_a_process_that_stands_still_does_everything_later_and_the_dead_do_nothing() -> None:
    engine, seen = Engine(), list[tuple[int, int]]()
    paused, dead = Process(), Process()
    paused.paused_until, dead.alive = 30, False
    for number in (1, 2):
        engine.at(number, paused, lambda n: seen.append((engine.now, n)), number)
        engine.at(number, dead, lambda n: seen.append((engine.now, -n)), number)
    engine.run(100)
    assert seen == [(30, 1), (30, 2)]


def folded(log: GroupLog) -> LogState:
    state = LogState()
    for record in log.read():
        state = state.apply(record)
    return state


FLIGHTS = TopicPartition("flights", 0)


def position(offset: int) -> GroupRecord:
    return offset_record("delays", FLIGHTS, OffsetAndMetadata(offset), 0)


def log_of(batches: int) -> GroupLog:
    log = GroupLog()
    for offset in range(batches):
        log.append((position(offset),))
    return log


def test_a_compacted_log_means_the_same_and_a_torn_batch_is_gone() -> None:
    """S15."""
    log = log_of(5)
    whole = folded(log)
    log.compact()
    assert len(log) == 2
    assert folded(log) == whole
    assert log.lose_end() == 4
    assert folded(log).offsets["delays"][FLIGHTS].offset == 3


def test_a_log_that_is_compacted_while_it_is_read_means_the_same() -> None:
    """B1, S15."""
    log = log_of(7)
    first, at = log.read(end=log.middle), log.middle
    log.compact()
    assert log.read(start=at) == log.read() == [position(5), position(6)]
    state = LogState()
    for record in (*first, *log.read(start=at)):
        state = state.apply(record)
    assert state == folded(log)


@pytest.mark.parametrize("bit", range(0, 1_600, 7))
def test_a_bit_flips_and_all_from_its_batch_on_is_gone(bit: int) -> None:
    """S15: wherever it is, in a header or in a record."""
    log = log_of(6)
    whole = log.read()
    hit = log.flip_bit(3, bit)
    assert hit in (3, 4, 5)
    assert log.read() == whole
    log.open()
    assert log.read() == whole[:hit]
    log.append((position(9),))
    assert log.read() == [*whole[:hit], position(9)]


def test_only_what_compaction_has_not_touched_is_damaged() -> None:
    log = log_of(6)
    log.compact()
    assert len(log) == 2
    assert log.lose_end(4) == 5
    assert log.flip_bit(4, 0) == 5
    assert log.read() == [position(4)]


def test_a_log_is_damaged_by_a_broker_that_dies_and_compaction_leaves_that_alone() -> None:
    log = log_of(6)
    assert log.flip_bit(2, 0) == 4
    log.compact()
    log.open()
    assert folded(log) == folded(log_of(4))
