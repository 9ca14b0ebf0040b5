"""A checkpoint that was restored from a backup, on both brokers and in every group protocol."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from kohort.spark.source.position_resolver import PositionConflictError
from tests.spark.brokers import bootstrap
from tests.spark.conftest import Start
from tests.spark.playing import PlayedQuery, once, produce, set_group
from tests.spark.source.test_nothing_skipped import (
    ALL,
    FRESH,
    add_a_partition,
    restarted,
    run_until,
)

__all__ = ["bootstrap"]

ALONE = {"commitOnly": {"groupMode": "commitOnly"}, "exclusive": {"exclusive": "true"}}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said of an older copy of a checkpoint."""
    texts = (record.message for record in caplog.records if record.levelname == "WARNING")
    return [text for text in texts if "older copy" in text]


def backed_up(bootstrap: str, topic: str, start: Start, **more: str) -> PlayedQuery:
    """A query that has stopped after 100 records of a partition; `last` is a copy of its 50."""
    produce(bootstrap, topic, {0: 50})
    query = start(**more)
    query.run_until(50)
    older = query.last
    produce(bootstrap, topic, {0: 50})
    query.run_until(100)
    query.reader.stop()
    query.last = older
    return query


@pytest.mark.parametrize("mode", ALONE)
def test_a_restored_checkpoint_of_a_query_that_is_alone_reads_again(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    query = backed_up(bootstrap, topic, start, **ALONE[mode])
    again = start(query.last, **ALONE[mode])
    run_until(again, 50)
    assert {offset for _, offset in again.sink} == set(range(50, 100))
    (said,) = warnings(caplog)
    assert f"{topic}-0: query 'north' (this checkpoint, batch 2) has committed offset 100" in said
    assert "checkpoint ends at 50 (batch 1)" in said
    assert "positions=group" in said
    caplog.clear()
    run_until(restarted(start, again, **ALONE[mode]), 0)
    assert warnings(caplog) == []


@pytest.mark.parametrize("mode", ALONE)
def test_a_restored_checkpoint_with_an_open_batch_reads_it_whole(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    query = backed_up(bootstrap, topic, start, **ALONE[mode])
    again = start(query.last, **ALONE[mode])
    assert again.offer(ReadMaxRows(20))
    opened = again.open
    again.reader.stop()  # killed in the open batch, and started again
    caplog.clear()
    once_more = start(query.last, **ALONE[mode])
    once_more.open = opened
    assert len(once_more.write()) == 20
    run_until(once_more, 50)
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("more", [ALONE["exclusive"], {"positions": "checkpoint"}])
def test_a_restored_checkpoint_stays_behind_the_group_through_a_rebalance(
    bootstrap: str, topic: str, start: Start, more: dict[str, str]
) -> None:
    query = backed_up(bootstrap, topic, start, **more)
    again = start(query.last, **more, **FRESH)
    assert again.offer(ReadMaxRows(20))
    again.write()
    add_a_partition(bootstrap, topic)
    produce(bootstrap, topic, {4: 5})
    while (4, 4) not in again.sink:
        if again.offer(ReadMaxRows(5)):
            again.write()
    run_until(again, 55)


def test_a_restored_checkpoint_of_a_member_goes_on_with_the_group_and_says_so(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    query = backed_up(bootstrap, topic, start)
    produce(bootstrap, topic, {0: 5})
    run_until(start(query.last), 5)
    (said,) = warnings(caplog)
    assert f"{topic}-0" in said
    assert "does not read offsets 50 to 99 again (positions=checkpoint does)" in said


@pytest.mark.parametrize("mode", ALONE)
def test_an_operator_who_sets_the_group_forward_means_it(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    produce(bootstrap, topic, {0: 50})
    query = start(**ALONE[mode])
    query.run_until(50)
    query.reader.stop()
    produce(bootstrap, topic, {0: 50})
    set_group(bootstrap, topic, {0: 90})
    run_until(start(query.last, **ALONE[mode]), 10)
    assert f"{topic}-0: another client or an operator has committed offset 90" in caplog.text


@pytest.mark.parametrize("mode", ["member", *ALONE])
def test_no_crash_looks_like_a_restored_checkpoint(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    """Killed in each gap between Spark's logs and the group's offsets: nothing twice, no word."""
    more = ALONE.get(mode, {})
    produce(bootstrap, topic, ALL)
    query = start(**more)
    assert query.offer(ReadMaxRows(100))
    query.write()
    again = restarted_with_open(start, query, **more)  # before the sink has finished it
    assert once(again.write(), dict.fromkeys(range(4), 25))
    assert again.offer(ReadMaxRows(100))  # commits the first to the group
    once_more = restarted_with_open(start, again, **more)  # while the second is open
    assert len(once_more.write()) == 100
    once_more.last, once_more.open = once_more.open, None  # in Spark's log, not in the group
    run_until(restarted(start, once_more, **more), 0)
    assert warnings(caplog) == []


def restarted_with_open(start: Start, query: PlayedQuery, **more: str) -> PlayedQuery:
    """The next run of a query that was killed in its open batch."""
    again = restarted(start, query, **more)
    again.open = query.open
    return again


def test_positions_fail_asks_about_a_restored_open_batch(
    bootstrap: str, topic: str, start: Start
) -> None:
    query = backed_up(bootstrap, topic, start)
    again = start(query.last, positions="checkpoint")
    assert again.offer(ReadMaxRows(20))
    again.reader.stop()
    asked = start(query.last, positions="fail")
    asked.open = again.open
    with pytest.raises(PositionConflictError, match="positions=checkpoint reads offsets 50 to 99"):
        asked.write()
