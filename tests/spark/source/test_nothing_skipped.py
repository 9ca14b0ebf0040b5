"""Changes that once made the source skip records, on both brokers and in every group protocol."""

from __future__ import annotations

import functools
import json
import logging
from collections import Counter
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from pyspark.sql.streaming.datasource import ReadMaxRows

from kohort.spark.options.source import OptionError
from kohort.spark.source import exclusive
from kohort.spark.source.exclusive import ExclusiveGroupError
from kohort.spark.source.lookup import DataLossError
from kohort.spark.source.position_resolver import PositionConflictError
from kohort.spark.source.query_state import GroupInUseError
from tests.spark.brokers import bootstrap
from tests.spark.conftest import Start
from tests.spark.playing import PlayedQuery, committed, once, produce, set_group

__all__ = ["bootstrap"]

FRESH = {"kafka__metadata__max__age__ms": "500"}


@functools.cache
def admin(bootstrap: str) -> AdminClient:
    """One client per broker, as its futures do not outlive it."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def add_a_partition(bootstrap: str, topic: str) -> None:
    admin(bootstrap).create_partitions([NewPartitions(topic, 5)])[topic].result(60)


def make_anew(bootstrap: str, topic: str) -> None:
    admin(bootstrap).delete_topics([topic])[topic].result(60)
    created = False
    while not created:  # a broker may not be done with the old one
        future = admin(bootstrap).create_topics([NewTopic(topic, 4, 1)])[topic]
        created = future.exception(10) is None


def run_until(query: PlayedQuery, count: int) -> None:
    query.run_until(count)
    assert len(query.sink) == count


def restarted(start: Start, query: PlayedQuery, **more: str) -> PlayedQuery:
    """The next run of a query that was stopped."""
    query.reader.stop()
    return start(query.last, **more)


ALL = dict.fromkeys(range(4), 50)


def test_a_partition_that_is_added_is_read_from_its_beginning(
    bootstrap: str, topic: str, start: Start
) -> None:
    query = start(startingOffsets="latest")
    assert not query.offer()
    produce(bootstrap, topic, ALL)
    run_until(query, 200)
    add_a_partition(bootstrap, topic)
    produce(bootstrap, topic, {4: 50})
    run_until(query, 250)
    assert once(query.sink, {**ALL, 4: 50})


def test_a_partition_that_is_added_before_the_first_batch(
    bootstrap: str, topic: str, start: Start
) -> None:
    query = start(startingOffsets="latest")
    assert not query.offer()
    add_a_partition(bootstrap, topic)
    produce(bootstrap, topic, {4: 50})
    run_until(query, 50)


def test_a_partition_that_is_added_while_the_query_is_down(
    bootstrap: str, topic: str, start: Start
) -> None:
    query = start(startingOffsets="latest")
    assert not query.offer()
    produce(bootstrap, topic, ALL)
    run_until(query, 200)
    query.reader.stop()
    add_a_partition(bootstrap, topic)
    produce(bootstrap, topic, {4: 50})
    again = start(query.last, startingOffsets="latest")
    run_until(again, 50)
    assert once(query.sink + again.sink, {**ALL, 4: 50})


def test_a_checkpoint_outlives_the_group(bootstrap: str, topic: str, start: Start) -> None:
    query = start(startingOffsets="latest")
    assert not query.offer()
    produce(bootstrap, topic, ALL)
    run_until(query, 200)
    query.reader.stop()
    group = f"group-of-{topic}"
    admin(bootstrap).delete_consumer_groups([group])[group].result(60)
    produce(bootstrap, topic, {0: 10})
    again = start(query.last, startingOffsets="latest")
    run_until(again, 10)
    assert committed(bootstrap, topic, range(4)) == {0: 60, 1: 50, 2: 50, 3: 50}


def test_an_offset_that_has_expired_is_said_and_read_again(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    produce(bootstrap, topic, {0: 5, 1: 5})
    set_group(bootstrap, topic, {1: 5, 2: 0, 3: 0})
    query = start(startingOffsets="latest")
    run_until(query, 5)
    assert Counter(partition for partition, _ in query.sink) == {0: 5}
    assert "the group has no offset for it" in caplog.text


def test_two_members_that_start_together_start_at_latest(
    bootstrap: str, topic: str, start: Start
) -> None:
    produce(bootstrap, topic, ALL)
    queries = [start(startingOffsets="latest", kafka__client__id=each) for each in ("a", "b")]
    while min(len(ends_of(query)) for query in queries) < 2:
        for query in queries:
            query.offer()
    produce(bootstrap, topic, dict.fromkeys(range(4), 10))
    while sum(len(query.sink) for query in queries) < 40:
        for query in queries:
            if query.offer():
                query.write()
    assert all(offset >= 50 for query in queries for _, offset in query.sink)


def ends_of(query: PlayedQuery) -> dict[str, Any]:
    """What the query owns, as its progress says."""
    topics = query.reader.reportLatestOffset()["topics"]
    assert isinstance(topics, dict)
    return next(iter(topics.values()), {})


# ------------------------------------------------------------------------- topics recreated


def test_a_topic_that_is_made_anew_under_a_query_fails_it(
    bootstrap: str, topic: str, start: Start
) -> None:
    produce(bootstrap, topic, ALL)
    query = start(**FRESH)
    run_until(query, 200)
    make_anew(bootstrap, topic)
    produce(bootstrap, topic, dict.fromkeys(range(4), 90))
    with pytest.raises(DataLossError, match=r"recreated.*failOnDataLoss to false") as failed:
        query.run_until(560)
    assert topic in str(failed.value)
    assert len(query.sink) == 200


def test_a_topic_that_is_made_anew_is_read_from_its_beginning_on_request(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    produce(bootstrap, topic, ALL)
    query = start(failOnDataLoss="false", startingOffsets="earliest", **FRESH)
    run_until(query, 200)
    make_anew(bootstrap, topic)
    produce(bootstrap, topic, dict.fromkeys(range(4), 90))
    run_until(query, 560)
    assert "was deleted and recreated" in caplog.text
    assert committed(bootstrap, topic, range(4)) == dict.fromkeys(range(4), 90)


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_was_made_anew_while_the_query_was_down(
    bootstrap: str, topic: str, start: Start, fails: bool
) -> None:
    produce(bootstrap, topic, ALL)
    query = start(startingOffsets="latest" if fails else "earliest")
    query.offer()
    produce(bootstrap, topic, ALL)
    query.run_until(200)
    query.reader.stop()
    make_anew(bootstrap, topic)
    produce(bootstrap, topic, dict.fromkeys(range(4), 90))
    again = start(query.last, failOnDataLoss=str(fails).lower(), startingOffsets="latest")
    if fails:
        with pytest.raises(DataLossError, match="was deleted and recreated"):
            again.offer()
    else:
        run_until(again, 360)


def test_a_repeated_batch_of_a_topic_that_was_made_anew(
    bootstrap: str, topic: str, start: Start
) -> None:
    produce(bootstrap, topic, ALL)
    query = start()
    assert query.offer()
    query.reader.stop()
    make_anew(bootstrap, topic)
    produce(bootstrap, topic, dict.fromkeys(range(4), 90))
    again = start(query.last)
    again.open = query.open
    with pytest.raises(DataLossError, match="was deleted and recreated"):
        again.write()
    again.reader.stop()
    once_more = start(query.last, failOnDataLoss="false")
    once_more.open = query.open
    assert once_more.write() == []
    run_until(once_more, 360)


# -------------------------------------------------------------------- group against checkpoint


def test_a_group_that_was_set_back_is_read_again(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    produce(bootstrap, topic, ALL)
    query = start()
    query.run_until(200)
    query.reader.stop()
    set_group(bootstrap, topic, {0: 10})
    again = start(query.last)
    run_until(again, 40)
    warned = [r.message for r in caplog.records if "another program has set offset 10" in r.message]
    assert len(warned) == 1
    assert f"{topic}-0" in warned[0]


def test_a_commit_that_was_lost_is_repaired(bootstrap: str, topic: str, start: Start) -> None:
    """The process was killed between Spark's commit log and the group's offsets."""
    produce(bootstrap, topic, ALL)
    query = start()
    for _ in range(2):
        assert query.offer(ReadMaxRows(100))
        query.write()
    query.reader.stop()
    assert committed(bootstrap, topic, range(4)) == dict.fromkeys(range(4), 25)
    again = start(query.open)
    assert not again.offer()
    assert committed(bootstrap, topic, range(4)) == ALL


@pytest.mark.parametrize(("positions", "count"), [("group", 40), ("checkpoint", 0)])
def test_positions_says_what_to_believe(
    bootstrap: str, topic: str, start: Start, positions: str, count: int
) -> None:
    produce(bootstrap, topic, ALL)
    query = start()
    query.run_until(200)
    query.reader.stop()
    set_group(bootstrap, topic, {0: 10})
    again = start(query.last, positions=positions)
    run_until(again, count)
    again.offer()
    assert committed(bootstrap, topic, range(4)) == ALL


def test_an_older_checkpoint_is_read_again_with_positions_checkpoint(
    bootstrap: str, topic: str, start: Start
) -> None:
    """As a stateful query needs it whose checkpoint was restored: its totals repeat."""
    produce(bootstrap, topic, {0: 50})
    query = start()
    query.run_until(50)
    older = query.last
    produce(bootstrap, topic, {0: 50})
    query.run_until(100)
    query.reader.stop()
    again = start(older, positions="checkpoint")
    run_until(again, 50)


def test_positions_fail_asks_the_operator(bootstrap: str, topic: str, start: Start) -> None:
    produce(bootstrap, topic, ALL)
    query = start()
    query.run_until(200)
    query.reader.stop()
    set_group(bootstrap, topic, {0: 10, 2: 20})
    with pytest.raises(PositionConflictError) as refused:
        start(query.last, positions="fail").offer()
    said = str(refused.value)
    assert "disagree in 2 of the partitions" in said
    assert f"{topic}-0: another client or an operator has committed offset 10" in said
    assert f"{topic}-2: another client or an operator has committed offset 20" in said
    assert "checkpoint ends at 50 (batch 1) (positions=group reads offsets 20 to 49 again" in said


# ----------------------------------------------------------------------------- alone in a group


def test_an_exclusive_query_refuses_a_group_with_members(
    bootstrap: str, topic: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exclusive, "session_s", lambda _: 1.0)  # north is not gone
    north = start()
    north.offer()
    south = start(exclusive="true", kafka__client__id="south")
    with pytest.raises(ExclusiveGroupError, match=r"exclusive is true.* members: north on "):
        south.offer()


def test_a_newcomer_refuses_to_join_an_exclusive_query(
    bootstrap: str, topic: str, start: Start
) -> None:
    produce(bootstrap, topic, ALL)
    north = start(exclusive="true")
    north.run_until(200)
    with pytest.raises(ExclusiveGroupError, match="query north must be alone"):
        start(kafka__client__id="south").offer()
    north.reader.stop()
    start(kafka__client__id="south").offer()  # it has left


def test_an_exclusive_query_of_the_past_keeps_nobody_away(
    bootstrap: str, topic: str, start: Start
) -> None:
    """Its notes stay in the group until each partition has another commit."""
    produce(bootstrap, topic, ALL)
    past = start(exclusive="true", kafka__client__id="past")
    past.run_until(200)
    past.reader.stop()
    north = start()
    north.offer()
    start(kafka__client__id="south").offer()


def test_commit_only_owns_everything_and_joins_nothing(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kohort.spark")
    produce(bootstrap, topic, ALL)
    query = start(groupMode="commitOnly")
    query.run_until(200)
    assert committed(bootstrap, topic, range(4)) == ALL
    group = f"group-of-{topic}"
    described = admin(bootstrap).describe_consumer_groups([group])[group].result(60)
    assert described.members == []
    add_a_partition(bootstrap, topic)
    produce(bootstrap, topic, {4: 5})
    run_until(query, 205)
    again = restarted(start, query, groupMode="commitOnly")
    produce(bootstrap, topic, {4: 5})
    run_until(again, 5)


def test_commit_only_fails_when_the_group_gets_members(
    bootstrap: str, topic: str, start: Start
) -> None:
    produce(bootstrap, topic, ALL)
    query = start(groupMode="commitOnly")
    query.run_until(200)
    other = start(kafka__client__id="south")
    other.offer()
    produce(bootstrap, topic, ALL)
    with pytest.raises(GroupInUseError, match="groupMode=commitOnly"):
        query.run_until(600)


def test_two_queries_that_only_commit_to_one_group_are_told_of_each_other(
    bootstrap: str, topic: str, start: Start
) -> None:
    produce(bootstrap, topic, ALL)
    north = start(groupMode="commitOnly")
    north.run_until(200)
    south = start(groupMode="commitOnly", kafka__client__id="south")
    assert not south.offer()
    produce(bootstrap, topic, ALL)
    south.run_until(200)
    with pytest.raises(ExclusiveGroupError, match="query south, with another checkpoint, commits"):
        north.run_until(10_000)


def test_a_query_that_only_commits_does_not_skip_what_another_has_read(
    bootstrap: str, topic: str, start: Start
) -> None:
    produce(bootstrap, topic, ALL)
    north = start(groupMode="commitOnly")
    north.run_until(200)
    north.reader.stop()
    south = start(groupMode="commitOnly", kafka__client__id="south")
    produce(bootstrap, topic, ALL)
    south.run_until(200)
    south.reader.stop()
    with pytest.raises(ExclusiveGroupError, match="query south has committed to group"):
        restarted(start, north, groupMode="commitOnly").offer()
    again = restarted(start, north, groupMode="commitOnly", positions="checkpoint")
    run_until(again, 200)


def test_a_query_that_only_commits_goes_on_after_a_checkpoint_was_lost(
    bootstrap: str, topic: str, start: Start
) -> None:
    produce(bootstrap, topic, ALL)
    lost = start(groupMode="commitOnly")
    lost.run_until(200)
    lost.reader.stop()
    produce(bootstrap, topic, {0: 5})
    north = start(groupMode="commitOnly")
    run_until(north, 5)
    produce(bootstrap, topic, {0: 5, 1: 5})
    again = restarted(start, north, groupMode="commitOnly")
    run_until(again, 10)


def test_without_a_group_nothing_is_committed(bootstrap: str, topic: str, start: Start) -> None:
    produce(bootstrap, topic, ALL)
    query = start(groupMode="none")
    query.run_until(200)
    produce(bootstrap, topic, {0: 3})
    again = restarted(start, query, groupMode="none")
    run_until(again, 3)
    assert committed(bootstrap, topic, [0]) == {0: -1001}


# ------------------------------------------------------------ starts and topics that are not there


def test_a_start_past_the_end_is_refused_before_it_is_committed(
    bootstrap: str, topic: str, start: Start
) -> None:
    produce(bootstrap, topic, ALL)
    wrong = json.dumps({topic: {"0": 5_000}})
    mistaken = start(startingOffsets=wrong, **FRESH)
    with pytest.raises(OptionError, match="holds offsets 0 to 50, and startingOffsets is 5000"):
        mistaken.run_until(1)
    mistaken.reader.stop()
    assert set(committed(bootstrap, topic, range(4)).values()) == {-1001}
    right = json.dumps({topic: {"0": 40}})
    query = start(startingOffsets=right, **FRESH)
    run_until(query, 160)
    assert min(offset for partition, offset in query.sink if partition == 0) == 40


def test_a_start_past_the_end_is_the_beginning_on_request(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    produce(bootstrap, topic, ALL)
    wrong = json.dumps({topic: {"0": 5_000}})
    query = start(startingOffsets=wrong, failOnDataLoss="false", **FRESH)
    run_until(query, 200)
    assert "startingOffsets is 5000" in caplog.text


def test_a_pattern_that_matches_nothing_yet_waits(bootstrap: str, topic: str, start: Start) -> None:
    name = f"{topic}.later"
    more = {"subscribe": "", "subscribePattern": f"{topic}[.]later"}
    query = start(**more, **FRESH)
    assert not query.offer()
    admin(bootstrap).create_topics([NewTopic(name, 4, 1)])[name].result(60)
    produce(bootstrap, name, ALL)
    run_until(query, 200)
    assert Counter(query.sink) == Counter({(p, o): 1 for p in range(4) for o in range(50)})


def test_a_topic_that_is_gone_when_the_query_starts_fails_it(
    bootstrap: str, topic: str, start: Start
) -> None:
    other = f"{topic}.other"
    admin(bootstrap).create_topics([NewTopic(other, 1, 1)])[other].result(60)
    produce(bootstrap, topic, ALL)
    query = start(subscribe=f"{topic},{other}", **FRESH)
    run_until(query, 200)
    query.reader.stop()
    admin(bootstrap).delete_topics([other])[other].result(60)
    again = start(query.last, subscribe=f"{topic},{other}", **FRESH)
    with pytest.raises(DataLossError, match=f"topic {other} no longer exists"):
        again.offer()
