"""Batch reads and starting positions on both brokers: what the options mean there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import confluent_kafka as foreign
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StructType

from kohort.client import Consumer
from kohort.spark.options.source import OptionError, parse_options
from kohort.spark.source.datasource import KohortDataSource
from kohort.spark.source.lookup import DataLossError, Lookup, client_settings
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.real_kafka.broker import RealKafka
from tests.spark.playing import PlayedQuery, Row, as_rows, options, produce

FOUR = range(4)


@pytest.fixture(params=["embedded", "kafka"])
def bootstrap(request: pytest.FixtureRequest, bootstrap: str) -> str:
    """The address of one broker and then of the other."""
    if request.param == "embedded":
        return bootstrap
    kafka: RealKafka = request.getfixturevalue("real_kafka")
    return kafka.bootstrap_servers


@pytest.fixture
def read(bootstrap: str, topic: str) -> Callable[..., list[Row]]:
    """Reads what a batch read with these options reads, in order."""

    def rows(**more: str) -> list[Row]:
        settings = {"kafka.bootstrap.servers": bootstrap}
        if not {"assign", "subscribePattern"} & more.keys():
            settings["subscribe"] = topic
        settings |= {key.replace("__", "."): value for key, value in more.items()}
        reader = KohortDataSource(settings).reader(None)  # type: ignore[arg-type]  # no schema
        return [
            row
            for task in reader.partitions()
            for batch in reader.read(task)
            for row in as_rows(batch)
        ]

    return rows


def by_partition(topic: str, numbers: Mapping[int, int]) -> str:
    """JSON as in `startingOffsets`."""
    return json.dumps({topic: {str(partition): number for partition, number in numbers.items()}})


def produce_at(bootstrap: str, topic: str, partition: int, *timestamps: int) -> None:
    producer = foreign.Producer({"bootstrap.servers": bootstrap})
    for timestamp in timestamps:
        producer.produce(topic, b"x", partition=partition, timestamp=timestamp)
    assert producer.flush(30) == 0


def delete_before(bootstrap: str, topic: str, partition: int, offset: int) -> None:
    """Have records deleted, as retention does."""
    place = foreign.TopicPartition(topic, partition, offset)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_records([place])[place].result(60)


def some(partition: int, *offsets: int) -> list[Row]:
    return [(partition, offset) for offset in offsets]


def test_everything_by_default(bootstrap: str, topic: str, read: Callable[..., list[Row]]) -> None:
    produce(bootstrap, topic, {0: 2, 3: 1})
    assert read() == [*some(0, 0, 1), *some(3, 0)]


def test_an_empty_topic_is_read_without_a_task(topic: str, read: Callable[..., list[Row]]) -> None:
    assert read() == []
    reader = KohortDataSource(options("127.0.0.1:1", topic)).reader(None)  # type: ignore[arg-type]  # no schema
    assert list(reader.read(InputPartition(None))) == []


def test_offsets_by_partition(bootstrap: str, topic: str, read: Callable[..., list[Row]]) -> None:
    """Partitions that are not named start at the beginning and end at the end."""
    produce(bootstrap, topic, {0: 5, 1: 5, 2: 2})
    starts, ends = {0: 3, 1: -2}, {1: 2, 0: -1}
    found = read(
        startingOffsets=by_partition(topic, starts), endingOffsets=by_partition(topic, ends)
    )
    assert found == [*some(0, 3, 4), *some(1, 0, 1), *some(2, 0, 1)]


def test_partitions_by_name(bootstrap: str, topic: str, read: Callable[..., list[Row]]) -> None:
    produce(bootstrap, topic, dict.fromkeys(FOUR, 1))
    assert read(assign=json.dumps({topic: [3, 1]})) == [(1, 0), (3, 0)]
    with pytest.raises(OptionError, match=f"assign names {topic}-4, and {topic} has 4 partitions"):
        read(assign=json.dumps({topic: [4]}))


def test_topics_by_pattern(
    bootstrap: str, topic: str, read: Callable[..., list[Row]], caplog: pytest.LogCaptureFixture
) -> None:
    """As in Java the pattern may match anywhere in the name; Kafka's own topics never match."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    other = f"x{topic}"
    admin.create_topics([NewTopic(other, 1, 1)])[other].result(60)
    produce(bootstrap, topic, {2: 1})
    produce(bootstrap, other, {0: 1})
    assert read(subscribePattern=f"\\Q{topic}\\E") == [(2, 0), (0, 0)]
    assert read(subscribePattern=f"(?i)^{topic.upper()}$") == [(2, 0)]
    assert read(subscribePattern="__consumer|__trans") == []
    assert "reads nothing: no topic exists" in caplog.text
    with pytest.raises(OptionError, match=f"{other} is named, and is none of the topics that"):
        read(subscribePattern=f"^{topic}$", startingOffsets=by_partition(other, {0: 0}))


def test_a_timestamp_for_all(bootstrap: str, topic: str, read: Callable[..., list[Row]]) -> None:
    produce_at(bootstrap, topic, 0, 1000, 2000, 3000)
    produce_at(bootstrap, topic, 1, 1500, 2500)
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    assert read(startingTimestamp="2000", **late) == [*some(0, 1, 2), *some(1, 1)]
    assert read(startingTimestamp="1500", endingTimestamp="2500", **late) == [
        *some(0, 1),
        *some(1, 0),
    ]
    assert read(endingTimestamp="9000", startingOffsets="earliest") == [
        *some(0, 0, 1, 2),
        *some(1, 0, 1),
    ]
    says = f"no record of {topic}-0, {topic}-1, {topic}-2, {topic}-3 is at or after timestamp 9000"
    with pytest.raises(OptionError, match=says):
        read(startingTimestamp="9000")


def test_a_timestamp_of_latest_or_earliest(
    bootstrap: str, topic: str, read: Callable[..., list[Row]]
) -> None:
    """As brokers and Spark's own source take -1 and -2."""
    produce_at(bootstrap, topic, 0, 1000, 2000)
    both = some(0, 0, 1)
    assert read(startingTimestamp="-2") == read(endingTimestamp="-1") == [*both]
    assert read(startingTimestamp="-2", endingTimestamp="2000") == [*some(0, 0)]
    assert read(startingTimestamp="-1") == read(endingTimestamp="-2") == []
    assert read(startingOffsetsByTimestamp=by_partition(topic, {0: -1, 1: -2})) == []


def test_a_timestamp_by_partition(
    bootstrap: str, topic: str, read: Callable[..., list[Row]]
) -> None:
    produce_at(bootstrap, topic, 0, 1000, 2000, 3000)
    produce_at(bootstrap, topic, 1, 1500, 2500)
    starts, ends = by_partition(topic, {0: 2000}), by_partition(topic, {1: 2000, 0: 9000})
    found = read(startingOffsetsByTimestamp=starts, endingOffsetsByTimestamp=ends)
    assert found == [*some(0, 1, 2), *some(1, 0)]
    with pytest.raises(OptionError, match=f"{topic} has 4 partitions, no 7"):
        read(startingOffsetsByTimestamp=by_partition(topic, {7: 5}))


def test_the_offsets_of_a_group(bootstrap: str, topic: str, read: Callable[..., list[Row]]) -> None:
    produce(bootstrap, topic, {0: 3})
    group = {"startingOffsets": "committed", "kafka__group__id": f"group-of-{topic}"}
    with Consumer.from_config(
        {"bootstrap.servers": bootstrap, "group.id": f"group-of-{topic}"}
    ) as consumer:
        consumer.commit({TopicPartition(topic, number): OffsetAndMetadata(0) for number in (0, 1)})
        with pytest.raises(OptionError, match=f"has no offset for {topic}-2, {topic}-3. Commit"):
            read(**group)
        consumer.commit({TopicPartition(topic, p): OffsetAndMetadata(2 * (not p)) for p in FOUR})
    assert read(**group) == some(0, 2)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"startingOffsets": 9}, "holds offsets 0 to 3, and the read is to start at 9, past the e"),
        ({"endingOffsets": 9}, "holds offsets 0 to 3, and the read is to end at 9, past the end"),
        ({"startingOffsets": 3, "endingTimestamp": 1500}, "start at 3 and to end at 1, before it"),
    ],
)
def test_a_range_past_the_log_is_an_error_at_once(
    bootstrap: str,
    topic: str,
    read: Callable[..., list[Row]],
    more: dict[str, int],
    says: str,
) -> None:
    produce_at(bootstrap, topic, 0, 1000, 2000, 3000)
    given = {
        name: str(value) if name.endswith("Timestamp") else by_partition(topic, {0: value})
        for name, value in more.items()
    }
    with pytest.raises(OptionError, match=says):
        read(**given)
    found = read(**given, failOnDataLoss="false")
    assert found == (some(0, 0, 1, 2) if "startingOffsets" not in more else [])


def test_deleted_records_are_an_error_or_a_warning(
    bootstrap: str, topic: str, read: Callable[..., list[Row]], caplog: pytest.LogCaptureFixture
) -> None:
    produce(bootstrap, topic, {0: 9})
    delete_before(bootstrap, topic, 0, 4)
    wanted = {
        "startingOffsets": by_partition(topic, {0: 1}),
        "endingOffsets": by_partition(topic, {0: 6}),
    }
    says = f"{topic}-0 holds offsets 4 to 9, and the read is to start at 1: 3 offsets were deleted"
    with pytest.raises(DataLossError, match=says):
        read(**wanted)
    assert read(**wanted, failOnDataLoss="false") == some(0, 4, 5)
    assert caplog.messages[-1].startswith(says)


def test_options_without_effect_are_logged(
    topic: str, read: Callable[..., list[Row]], caplog: pytest.LogCaptureFixture
) -> None:
    assert read(fetchOffset__numRetries="5", maxOffsetsPerTrigger="7") == []
    assert [message.split("; ")[1].split(":")[0] for message in caplog.messages] == [
        "fetchOffset.numRetries",
        "maxOffsetsPerTrigger",
    ]


def test_some_columns(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, {0: 1})
    settings = options(bootstrap, topic, columns="value,headers,offset")
    source = KohortDataSource(settings)
    assert source.schema().simpleString() == (
        "struct<value:binary,headers:array<struct<key:string,value:binary>>,offset:bigint>"
    )
    schema = StructType().add("offset", "long").add("topic", "string")
    for given, names in ((None, ["value", "headers", "offset"]), (schema, ["offset", "topic"])):
        reader = source.reader(given)  # type: ignore[arg-type]  # None: the source's own
        batches: list[Any] = [b for task in reader.partitions() for b in reader.read(task)]
        assert [batch.schema.names for batch in batches] == [names]


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("flight", "string", "the schema has a column 'flight', and the source has key, value"),
        ("value", "string", "the schema says value string, and the source has value binary"),
    ],
)
def test_a_schema_that_the_source_does_not_have(name: str, kind: str, says: str) -> None:
    source = KohortDataSource(options("127.0.0.1:1", "a"))
    schema = StructType().add(name, kind)
    with pytest.raises(OptionError, match=says):
        source.reader(schema)
    reader = source.streamReader(schema)
    with pytest.raises(OptionError, match=says):
        reader.getDefaultReadLimit()


def test_a_stream_is_refused_where_spark_can_say_so() -> None:
    """Not in `streamReader`: Spark then ends with an UnboundLocalError of its own."""
    settings = options("127.0.0.1:1", "a")
    del settings["kafka.group.id"]
    reader = KohortDataSource(settings).streamReader(None)  # type: ignore[arg-type]  # no schema
    with pytest.raises(OptionError, match=r"kafka\.group\.id is required"):
        reader.getDefaultReadLimit()
    reader.stop()


def test_where_a_stream_starts(bootstrap: str, topic: str) -> None:
    produce_at(bootstrap, topic, 0, 1000, 2000)
    produce_at(bootstrap, topic, 1, 1500)
    places = [TopicPartition(topic, number) for number in (0, 1)]

    def starting(**more: str) -> list[int]:
        parsed = parse_options({**options(bootstrap, topic), **more})
        with Consumer.from_config(client_settings(parsed)) as consumer:
            found = Lookup(parsed, consumer).starting(places, default="latest")
        return [found[place] for place in places]

    assert starting() == [0, 0]
    assert starting(startingOffsets="latest") == [2, 1]
    assert starting(startingTimestamp="1500") == [1, 0]
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    assert starting(startingTimestamp="1800", **late) == [1, 1]
    with pytest.raises(OptionError, match=f"no record of {topic}-1 is at or after timestamp 1800"):
        starting(startingTimestamp="1800")


def test_a_stream_waits_for_enough_records(bootstrap: str, topic: str) -> None:
    settings = options(bootstrap, topic, minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    query = PlayedQuery(settings)
    limit: Any = query.reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    try:
        produce(bootstrap, topic, {0: 1})
        while not query.offer(limit) or not query.write():
            pass
        produce(bootstrap, topic, {0: 2, 1: 2})
        assert not query.offer(limit)
        produce(bootstrap, topic, {2: 1})
        while not query.offer(limit):
            pass
        assert len(query.write()) == 5
        produce(bootstrap, topic, {3: 1})
        assert not query.offer(limit)
        while not query.offer(ReadAllAvailable()):
            pass
        assert query.write() == [(3, 0)]
    finally:
        query.reader.stop()


def test_a_limit_comes_before_the_records_to_wait_for(bootstrap: str, topic: str) -> None:
    settings = options(bootstrap, topic, minOffsetsPerTrigger="2", maxOffsetsPerTrigger="2")
    query = PlayedQuery(settings)
    try:
        limit = query.reader.getDefaultReadLimit()
        assert limit == ReadMaxRows(2)
        produce(bootstrap, topic, dict.fromkeys(FOUR, 1))
        sizes = []
        while len(query.sink) < 4:
            if query.offer(limit):
                sizes.append(len(query.write()))
        assert sizes[-2:] == [2, 2]
        assert sorted(query.sink) == [(number, 0) for number in FOUR]
    finally:
        query.reader.stop()


def test_available_now_waits_for_nothing(bootstrap: str, topic: str) -> None:
    settings = options(bootstrap, topic, minOffsetsPerTrigger="100", maxTriggerDelay="1h")
    query = PlayedQuery(settings)
    try:
        produce(bootstrap, topic, dict.fromkeys(FOUR, 3))
        query.reader.prepareForTriggerAvailableNow()
        while query.offer(ReadMinRows(100)):
            query.write()
        assert len(query.sink) == 12
    finally:
        query.reader.stop()
