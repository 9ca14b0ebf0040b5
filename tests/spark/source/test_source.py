"""The source against a broker, driven like Spark does it, without a JVM."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from kohort.client import AdminClient
from kohort.errors import KafkaError, KohortError
from kohort.spark.source.datasource import KohortDataSource
from kohort.spark.source.lookup import DataLossError
from tests.spark.conftest import Start
from tests.spark.playing import (
    PlayedQuery,
    as_rows,
    committed,
    describe,
    once,
    options,
    produce,
    set_group,
)


def says(caplog: pytest.LogCaptureFixture, what: str) -> int:
    """How often the source has logged something."""
    return sum(what in record.message for record in caplog.records)


def test_each_record_is_read_once_and_committed_at_the_boundary(
    bootstrap: str, topic: str, start: Start
) -> None:
    produce(bootstrap, topic, {0: 3, 2: 5})
    query = start()
    assert query.offer()
    query.write()
    assert committed(bootstrap, topic, [0, 1, 2, 3]) == {0: 0, 1: 0, 2: 0, 3: 0}
    assert not query.offer()
    assert committed(bootstrap, topic, [0, 1, 2, 3]) == {0: 3, 1: 0, 2: 5, 3: 0}
    produce(bootstrap, topic, {0: 2, 1: 1})
    query.run_until(11)
    assert once(query.sink, {0: 5, 1: 1, 2: 5})
    assert committed(bootstrap, topic, [0, 1]) == {0: 5, 1: 1}


def test_the_manifest_names_every_owned_partition(bootstrap: str, topic: str, start: Start) -> None:
    produce(bootstrap, topic, {1: 4})
    query = start()
    assert query.offer()
    assert query.open is not None
    assert query.open["operator"] == "north"
    assert query.open["epoch"] >= 1
    assert query.open["topics"] == {topic: {"0": [0, 0], "1": [0, 4], "2": [0, 0], "3": [0, 0]}}


def test_a_query_without_a_client_id_has_that_of_the_docs(
    bootstrap: str, topic: str, start: Start
) -> None:
    query = start(kafka__client__id="")
    query.offer()
    (member,) = describe(bootstrap, topic).members
    assert member.client_id == "kohort-spark"
    query.reader.stop()


def test_an_idle_query_returns_the_very_offset(bootstrap: str, topic: str, start: Start) -> None:
    produce(bootstrap, topic, {0: 1})
    query = start()
    query.run_until(1)
    assert query.last is not None
    assert query.reader.latestOffset(query.last, ReadAllAvailable()) is query.last


def test_a_limit_is_shared_in_proportion(bootstrap: str, topic: str, start: Start) -> None:
    produce(bootstrap, topic, {0: 30, 1: 10})
    query = start(maxOffsetsPerTrigger="20")
    limit = query.reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    assert query.offer(limit)
    assert query.open is not None
    assert query.open["topics"][topic] == {"0": [0, 15], "1": [0, 5], "2": [0, 0], "3": [0, 0]}


def test_latest_means_from_now_on_also_for_the_next_owner(
    bootstrap: str, topic: str, start: Start
) -> None:
    """Where a stream starts is committed at once: who takes over must not look for `latest`."""
    produce(bootstrap, topic, {0: 5})
    first = start(startingOffsets="latest")
    assert not first.offer()
    produce(bootstrap, topic, {0: 2})
    first.reader.stop()
    assert committed(bootstrap, topic, [0, 1]) == {0: 5, 1: 0}
    second = start(startingOffsets="latest")
    second.run_until(2)
    assert second.sink == [(0, 5), (0, 6)]


def test_starting_offsets_by_partition(bootstrap: str, topic: str, start: Start) -> None:
    produce(bootstrap, topic, {0: 5, 1: 5, 2: 5})
    query = start(startingOffsets=f'{{"{topic}": {{"0": 3, "1": -1}}}}')
    query.run_until(7)
    assert sorted(query.sink) == [(0, 3), (0, 4), *((2, offset) for offset in range(5))]


def test_a_partition_that_does_not_exist_is_named(topic: str, start: Start) -> None:
    query = start(startingOffsets=f'{{"{topic}": {{"9": 3}}}}')
    with pytest.raises(KohortError, match="has 4 partitions, no 9"):
        query.offer()


def test_committed_records_that_are_gone_are_an_error(
    bootstrap: str, topic: str, start: Start
) -> None:
    set_group(bootstrap, topic, {0: 3})
    with pytest.raises(DataLossError, match="holds offsets 0 to 0, and the next to read is 3"):
        start().offer()


def test_a_revocation_waits_for_the_open_batch(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """In every protocol; where partitions stay, they stay without a barrier."""
    caplog.set_level(logging.INFO, "kohort.spark")
    counts = dict.fromkeys(range(4), 10)
    produce(bootstrap, topic, counts)
    north = start()
    assert north.offer()
    produce(bootstrap, topic, counts)
    south = start(kafka__client__id="south")

    def read_a_batch() -> None:
        while not south.offer():
            pass
        south.write()

    thread = threading.Thread(target=read_a_batch)
    thread.start()
    while not says(caplog, "giving back"):
        thread.join(0.01)
    assert not south.sink
    north.write()
    assert not south.sink
    while thread.is_alive():
        if north.offer():
            north.write()
    north.offer()
    assert once(north.sink + south.sink, dict.fromkeys(range(4), 20))
    assert sorted(south.sink) == [
        (partition, offset)
        for partition in sorted({partition for partition, _ in south.sink})
        for offset in range(10, 20)
    ]
    assert len(south.sink) == 20


@pytest.mark.parametrize("start", ["cooperative", "consumer"], indirect=True)
def test_partitions_that_stay_are_read_while_others_are_slow_to_give_up(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kohort.spark")
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_partitions({topic: 6})
    north, south = start(), start(kafka__client__id="south")
    while says(caplog, "owns 3 of 6") < 2:
        assert not north.offer()
        assert not south.offer()
    produce(bootstrap, topic, dict.fromkeys(range(6), 10))
    for query in (north, south):
        while not query.offer():
            pass
    west = start(kafka__client__id="west")

    def read_a_batch() -> None:
        if west.offer():
            west.write()

    thread = threading.Thread(target=read_a_batch)
    thread.start()
    while says(caplog, "giving back") < 2:
        thread.join(0.01)
    north.write()
    produce(bootstrap, topic, dict.fromkeys(range(6), 10))
    while not north.offer():
        assert not south.sink
    assert len(north.write()) == 20
    south.write()
    if south.offer():
        south.write()
    thread.join()
    while len(north.sink) + len(south.sink) + len(west.sink) < 120:
        for query in (north, south, west):
            if query.offer():
                query.write()
    assert once(north.sink + south.sink + west.sink, dict.fromkeys(range(6), 20))
    assert len(north.sink) == 50


def test_a_leaving_query_hands_its_partitions_over(
    bootstrap: str, topic: str, start: Start
) -> None:
    produce(bootstrap, topic, {0: 10, 3: 10})
    north = start()
    north.run_until(20)
    north.reader.stop()
    assert describe(bootstrap, topic).members == []
    produce(bootstrap, topic, {0: 5})
    south = start(kafka__client__id="south")
    south.run_until(5)
    assert once(north.sink + south.sink, {0: 15, 3: 10})


def test_an_open_batch_is_not_committed_by_stopping(
    bootstrap: str, topic: str, start: Start
) -> None:
    produce(bootstrap, topic, {0: 10})
    query = start()
    assert query.offer()
    query.reader.stop()
    assert committed(bootstrap, topic, [0]) == {0: 0}


def test_a_replay_reads_what_the_log_says(bootstrap: str, topic: str, start: Start) -> None:
    produce(bootstrap, topic, {0: 10, 1: 4})
    before = start()
    assert before.offer()
    before.reader.stop()
    produce(bootstrap, topic, {0: 3})
    after = start(before.last)
    after.open = before.open
    assert len(after.write()) == 14
    after.run_until(17)
    assert once(after.sink, {0: 13, 1: 4})


def test_a_replay_leaves_out_what_others_have_finished(
    bootstrap: str, topic: str, start: Start
) -> None:
    produce(bootstrap, topic, {0: 10, 1: 4})
    north = start()
    assert north.offer()
    north.reader.stop()
    south = start(kafka__client__id="south", maxOffsetsPerTrigger="7")
    assert south.offer(ReadMaxRows(7))
    south.write()
    south.offer(ReadMaxRows(1))
    south.reader.stop()
    again = start(north.last)
    again.open = north.open
    again.write()
    assert once(south.sink + again.sink, {0: 10, 1: 4})
    again.offer()
    assert committed(bootstrap, topic, [0, 1]) == {0: 10, 1: 4}


def test_a_restart_repairs_a_lost_commit(bootstrap: str, topic: str, start: Start) -> None:
    """Spark knows that the batch is finished; the process died before it could tell the group."""
    produce(bootstrap, topic, {0: 10})
    before = start()
    assert before.offer()
    before.write()
    before.reader.stop()
    after = start(before.open)
    assert not after.offer()
    assert not after.offer()
    assert committed(bootstrap, topic, [0]) == {0: 10}


def test_available_now_ends_where_the_topic_ended(bootstrap: str, topic: str, start: Start) -> None:
    produce(bootstrap, topic, {0: 30, 1: 30})
    query = start()
    query.reader.prepareForTriggerAvailableNow()
    assert query.offer(ReadMaxRows(20))
    produce(bootstrap, topic, {0: 5})
    query.write()
    while query.offer(ReadMaxRows(20)):
        query.write()
    assert once(query.sink, {0: 30, 1: 30})
    assert committed(bootstrap, topic, [0, 1]) == {0: 30, 1: 30}


def test_who_owns_only_a_part_says_so_once(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "kohort.spark")
    north, south = start(), start(kafka__client__id="south")
    north.offer()
    threads = [threading.Thread(target=query.offer) for query in (north, south)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    while says(caplog, "owns 2 of 4 partitions") < 2:
        north.offer()
        south.offer()
    for query in (north, south):
        query.offer()
    said = [r.message for r in caplog.records if "owns 2 of 4 partitions" in r.message]
    assert sorted(message.split()[1] for message in said) == ["north", "south"]


def test_the_progress_names_the_ends(bootstrap: str, topic: str, start: Start) -> None:
    produce(bootstrap, topic, {1: 4})
    query = start()
    query.offer()
    report = query.reader.reportLatestOffset()
    assert report["topics"] == {topic: {"0": 0, "1": 4, "2": 0, "3": 0}}


def test_a_topic_that_does_not_exist_is_an_error(bootstrap: str) -> None:
    query = PlayedQuery(options(bootstrap, "no-such-topic"))
    with pytest.raises(KafkaError, match="no-such-topic"):
        query.offer()


def test_a_batch_read_needs_no_group(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, {0: 10, 1: 4, 2: 1})
    settings = options(
        bootstrap,
        topic,
        startingOffsets=f'{{"{topic}": {{"0": 3, "2": 1}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 8}}}}',
    )
    del settings["kafka.group.id"]
    reader = KohortDataSource(settings).reader(None)  # type: ignore[arg-type]  # the schema is not used
    rows: list[Any] = [
        (partition, offset)
        for task in reader.partitions()
        for batch in reader.read(task)
        for partition, offset in as_rows(batch)
    ]
    assert rows == [*((0, offset) for offset in range(3, 8)), *((1, o) for o in range(4))]
