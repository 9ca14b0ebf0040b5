"""A restored checkpoint, and partitions and topics that it does not know, as they came later."""

from __future__ import annotations

import pytest
from confluent_kafka.cimpl import NewPartitions, NewTopic
from pyspark.sql.streaming.datasource import ReadMaxRows

from kohort.spark.source.exclusive import ExclusiveGroupError
from kohort.spark.source.position_resolver import PositionConflictError
from tests.spark.brokers import bootstrap
from tests.spark.conftest import Start
from tests.spark.playing import PlayedQuery, committed, once, produce, set_group
from tests.spark.source.test_nothing_skipped import (
    FRESH,
    add_a_partition,
    admin,
    make_anew,
    restarted,
    run_until,
)
from tests.spark.source.test_restored_checkpoint import ALONE

__all__ = ["bootstrap"]

AGAIN = {**ALONE, "checkpoint": {"positions": "checkpoint"}}


def unknown(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings about partitions that a checkpoint does not know."""
    texts = (record.message for record in caplog.records if record.levelname == "WARNING")
    return [text for text in texts if "does not know the partition" in text]


def grown(bootstrap: str, topic: str, start: Start, **more: str) -> PlayedQuery:
    """A query that has read 20 records of an added partition; `last` is a copy from before."""
    produce(bootstrap, topic, {0: 10})
    query = start(**more)
    query.run_until(10)
    older = query.last
    add_a_partition(bootstrap, topic)
    produce(bootstrap, topic, {4: 20})
    query = restarted(start, query, **more)
    run_until(query, 20)
    query.reader.stop()
    query.last = older
    return query


@pytest.mark.parametrize("mode", AGAIN)
def test_an_added_partition_is_read_again(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    query = grown(bootstrap, topic, start, **AGAIN[mode])
    again = start(query.last, **AGAIN[mode])
    run_until(again, 20)
    assert once(again.sink, {4: 20})
    (said,) = unknown(caplog)
    assert f"{topic}-4: query 'north' (this checkpoint, batch 2) has committed offset 20" in said
    caplog.clear()
    produce(bootstrap, topic, {4: 5})
    run_until(restarted(start, again, **AGAIN[mode]), 5)
    assert unknown(caplog) == []


@pytest.mark.parametrize("mode", ["commitOnly", "checkpoint"])
def test_an_added_topic_is_read_again(bootstrap: str, topic: str, start: Start, mode: str) -> None:
    more = {"subscribe": "", "subscribePattern": topic, **AGAIN[mode]}
    produce(bootstrap, topic, {0: 10})
    query = start(**more)
    query.run_until(10)
    older, later = query.last, f"{topic}-later"
    query.reader.stop()
    admin(bootstrap).create_topics([NewTopic(later, 1, 1)])[later].result(60)
    produce(bootstrap, later, {0: 20})
    for _ in range(2):  # on from the backup, and from it once more
        query = start(older, **more)
        run_until(query, 20)
        query.reader.stop()
    assert once(query.sink, {0: 20})


@pytest.mark.parametrize("mode", ["commitOnly", "checkpoint"])
def test_a_topic_that_was_recreated_since_is_read_again(
    bootstrap: str, topic: str, start: Start, mode: str
) -> None:
    more = {"failOnDataLoss": "false", **AGAIN[mode]}
    produce(bootstrap, topic, {0: 10})
    query = start(**more)
    query.run_until(10)
    older = query.last
    query.reader.stop()
    make_anew(bootstrap, topic)
    produce(bootstrap, topic, {0: 20})
    for _ in range(2):  # on from the backup, and from it once more
        query = start(older, **more)
        run_until(query, 20)
        query.reader.stop()
    assert once(query.sink, {0: 20})


@pytest.mark.parametrize("mode", ["commitOnly", "checkpoint"])
def test_a_kill_in_between_loses_nothing(
    bootstrap: str, topic: str, start: Start, mode: str
) -> None:
    query = grown(bootstrap, topic, start, **AGAIN[mode])
    again = start(query.last, **AGAIN[mode])
    assert again.offer(ReadMaxRows(8))
    again.write()
    assert again.offer(ReadMaxRows(8))
    once_more = restarted(start, again, **AGAIN[mode])
    once_more.open = again.open
    once_more.write()
    run_until(once_more, 12)
    assert once([*again.sink, *once_more.sink], {4: 20})


@pytest.mark.parametrize("mode", ["exclusive", "checkpoint"])
def test_a_rebalance_in_between_changes_nothing(
    bootstrap: str, topic: str, start: Start, mode: str
) -> None:
    more = {**AGAIN[mode], **FRESH}
    query = grown(bootstrap, topic, start, **more)
    again = start(query.last, **more)
    assert again.offer(ReadMaxRows(8))
    again.write()
    admin(bootstrap).create_partitions([NewPartitions(topic, 6)])[topic].result(60)
    produce(bootstrap, topic, {5: 5})
    while (5, 4) not in again.sink:
        if again.offer(ReadMaxRows(5)):
            again.write()
    run_until(again, 25)


def test_a_member_goes_on_with_the_group_and_says_so(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    query = grown(bootstrap, topic, start)
    produce(bootstrap, topic, {4: 5})
    run_until(start(query.last), 5)
    (said,) = unknown(caplog)
    assert "does not read the offsets before 20 (positions=checkpoint reads" in said


def test_positions_fail_asks(bootstrap: str, topic: str, start: Start) -> None:
    query = grown(bootstrap, topic, start)
    asked = start(query.last, positions="fail")
    with pytest.raises(PositionConflictError, match="positions=group skips the offsets before 20"):
        asked.run_until(1)


def shared(bootstrap: str, topic: str, start: Start) -> PlayedQuery:
    """A query whose sibling, which has ended, has read 10 records of each of its partitions."""
    north, south = start(**FRESH), start(kafka__client__id="south", **FRESH)
    queries = (north, south)
    while not all(query.last and query.last["topics"].get(topic) for query in queries):
        for query in queries:
            query.offer()
    while any(len(query.last["topics"][topic]) != 2 for query in queries if query.last):
        produce(bootstrap, topic, dict.fromkeys(range(4), 1))
        for query in queries:
            if query.offer():
                query.write()
    produce(bootstrap, topic, dict.fromkeys(range(4), 10))
    while min(committed(bootstrap, topic, range(4)).values()) < 10:
        for query in queries:
            if query.offer():
                query.write()
    for query in queries:
        while query.offer():
            query.write()
        query.reader.stop()
    return north


def test_a_member_that_becomes_the_only_query_goes_on_with_the_group(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    north = shared(bootstrap, topic, start)
    caplog.clear()
    produce(bootstrap, topic, dict.fromkeys(range(4), 1))
    run_until(start(north.last, groupMode="commitOnly"), 4)
    said = unknown(caplog)
    assert len(said) == 2
    assert all("query 'south' (checkpoint " in each for each in said)


def test_it_reads_what_its_sibling_has_read_on_request(
    bootstrap: str, topic: str, start: Start
) -> None:
    north = shared(bootstrap, topic, start)
    assert north.last is not None
    theirs = {0, 1, 2, 3} - {int(number) for number in north.last["topics"][topic]}
    ends = committed(bootstrap, topic, theirs)
    again = start(north.last, groupMode="commitOnly", positions="checkpoint")
    run_until(again, sum(ends.values()))
    assert once(again.sink, ends)


def test_positions_checkpoint_leaves_a_sibling_its_partitions(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    north = shared(bootstrap, topic, start)
    caplog.clear()
    produce(bootstrap, topic, dict.fromkeys(range(4), 1))
    run_until(start(north.last, positions="checkpoint"), 4)
    assert unknown(caplog) == []


def test_an_added_partition_that_another_has_read_is_refused(
    bootstrap: str, topic: str, start: Start
) -> None:
    only = ALONE["commitOnly"]
    produce(bootstrap, topic, {0: 10})
    north = start(**only)
    north.run_until(10)
    north.reader.stop()
    add_a_partition(bootstrap, topic)
    south = start(kafka__client__id="south", **only)
    produce(bootstrap, topic, {4: 20})
    south.run_until(20)
    south.reader.stop()
    with pytest.raises(ExclusiveGroupError, match="query south has committed to group"):
        restarted(start, north, **only).offer()
    run_until(start(north.last, positions="checkpoint", **only), 20)


@pytest.mark.parametrize("mode", ALONE)
def test_an_operator_who_sets_the_group_means_it(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    produce(bootstrap, topic, {0: 10})
    query = start(**ALONE[mode])
    query.run_until(10)
    query.reader.stop()
    add_a_partition(bootstrap, topic)
    produce(bootstrap, topic, {4: 20})
    set_group(bootstrap, topic, {4: 15})
    run_until(start(query.last, **ALONE[mode]), 5)
    assert "another client or an operator has committed offset 15" in unknown(caplog)[0]


@pytest.mark.parametrize("mode", ["commitOnly", "checkpoint"])
def test_a_first_start_goes_on_with_the_group(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    produce(bootstrap, topic, dict.fromkeys(range(4), 10))
    set_group(bootstrap, topic, dict.fromkeys(range(4), 5))
    run_until(start(**AGAIN[mode]), 20)
    assert unknown(caplog) == []
