"""The registry of rules, the engine, and the log of the simulated cluster."""

from __future__ import annotations

from kohort.group.coordinator.offsets.fold import offset_record
from kohort.group.coordinator.records import LogState
from kohort.simulation.engine import Engine
from kohort.simulation.log import GroupLog
from kohort.simulation.rules import RULES
from kohort.types import OffsetAndMetadata, TopicPartition

SAFETY = {f"S{number}" for number in range(1, 19)} - {"S17"}
LIVENESS = {f"L{number}" for number in range(1, 9)}


def test_every_rule_has_a_checker() -> None:
    """S17 speaks of regions and Spark, which are not part of this simulation."""
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


def test_a_compacted_log_means_the_same_and_a_torn_batch_is_gone() -> None:
    """S15."""
    log, flights = GroupLog(), TopicPartition("flights", 0)
    for offset in range(5):
        log.append((offset_record("delays", flights, OffsetAndMetadata(offset), 0),))
    whole = folded(log)
    log.compact(4)
    assert len(log) == 2
    assert folded(log) == whole
    log.tear()
    assert folded(log).offsets["delays"][flights].offset == 3
