from __future__ import annotations

import pickle

import pytest

from kohort.spark.options.checks import (
    check_batch_options,
    check_stream_options,
    ignored_options,
)
from kohort.spark.options.source import (
    OPTIONS,
    SPARK_ONLY,
    OptionError,
    SourceOptions,
    parse_options,
)
from kohort.types import TopicPartition

NEEDED = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "a, b"}
SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def parse(**more: str) -> SourceOptions:
    """Options with `subscribe`, unless there is something in its place; `__` is a dot."""
    needed = SERVERS if {"assign", "subscribePattern"} & more.keys() else NEEDED
    return parse_options(
        {**needed, **{key.replace("__", "."): value for key, value in more.items()}}
    )


def test_all_options() -> None:
    options = parse(
        STARTINGOFFSETS='{"a":{"0":23,"1":-1},"b":{"2":-2}}',
        endingOffsets=" Latest ",
        maxOffsetsPerTrigger="500",
        minOffsetsPerTrigger="400",
        maxTriggerDelay="2m",
        includeHeaders="True",
        failOnDataLoss="FALSE",
        minPartitions="7",
        maxRecordsPerPartition="1000",
        columns="value, headers",
        groupMode="commitonly",
        positions="checkpoint",
        exclusive="true",
        checkpointLocation="s3://bucket/checkpoint",
        commitMetadata="job 7",
        kafka__group__id="g",
        kafka__group__instance__id="one",
        kafka__session__timeout__ms="6000",
    )
    assert options.topics == ("a", "b")
    assert options.bootstrap_servers == "127.0.0.1:9092"
    assert options.starting_offsets == {
        TopicPartition("a", 0): 23,
        TopicPartition("a", 1): -1,
        TopicPartition("b", 2): -2,
    }
    assert (options.ending_offsets, options.max_offsets_per_trigger) == ("latest", 500)
    assert (options.min_offsets_per_trigger, options.max_trigger_delay_ms) == (400, 120_000)
    assert options.include_headers
    assert not options.fail_on_data_loss
    assert (options.min_partitions, options.max_records_per_partition) == (7, 1000)
    assert options.columns == ("value", "headers")
    assert (options.group_mode, options.positions) == ("commitOnly", "checkpoint")
    assert options.exclusive
    assert options.checkpoint_location == "s3://bucket/checkpoint"
    assert options.commit_metadata == "job 7"
    assert options.group_id == "g"
    assert options.settings == {
        "group.id": "g",
        "group.instance.id": "one",
        "session.timeout.ms": "6000",
    }
    assert pickle.loads(pickle.dumps(options)) == options


def test_defaults() -> None:
    options = parse()
    assert (options.starting_offsets, options.ending_offsets) == (None, None)
    assert (options.max_offsets_per_trigger, options.include_headers) == (None, False)
    assert (options.min_offsets_per_trigger, options.max_trigger_delay_ms) == (None, 900_000)
    assert (options.fail_on_data_loss, options.group_mode, options.positions) == (
        True,
        "member",
        None,
    )
    assert (options.columns, options.checkpoint_location, options.exclusive) == (None, None, False)


def test_partitions_by_name() -> None:
    options = parse(assign='{"b":[1,0],"a":[2]}')
    assert options.assigned == (
        TopicPartition("a", 2),
        TopicPartition("b", 0),
        TopicPartition("b", 1),
    )
    assert options.topics == ("a", "b")
    assert options.group_mode == "commitOnly"
    assert options.selection == "a-2, b-0, b-1"


def test_topics_by_pattern() -> None:
    options = parse(subscribePattern=" flights-[0-9]+ ")
    assert (options.pattern, options.topics) == ("flights-[0-9]+", ())
    assert options.selection == "topics that match 'flights-[0-9]+'"


def test_a_timestamp_for_all_comes_before_one_by_partition_before_offsets() -> None:
    by_partition = '{"a":{"0":1000}}'
    options = parse(startingOffsetsByTimestamp=by_partition, startingOffsets="no matter what")
    assert options.starting_offsets_by_timestamp == {TopicPartition("a", 0): 1000}
    assert (options.starting_timestamp, options.starting_offsets) == (None, None)
    options = parse(
        startingTimestamp="2000",
        startingOffsetsByTimestamp=by_partition,
        startingOffsets="earliest",
        startingOffsetsByTimestampStrategy="LATEST",
        endingTimestamp="3000",
        endingOffsetsByTimestamp=by_partition,
    )
    assert (options.starting_timestamp, options.ending_timestamp) == (2000, 3000)
    assert options.starting_offsets_by_timestamp is options.starting_offsets is None
    assert options.ending_offsets_by_timestamp is None
    assert options.starting_strategy == "latest"
    assert ignored_options(options, is_stream=False) == [
        "startingOffsetsByTimestamp: startingTimestamp comes first",
        "startingOffsets: startingTimestamp comes first",
        "endingOffsetsByTimestamp: endingTimestamp comes first",
    ]


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("250", 250), ("5ms", 5), ("7s", 7000), (" 2 M ", 120_000), ("1min", 60_000),
     ("1h", 3_600_000), ("1d", 86_400_000), ("3000us", 3)],
)  # fmt: skip
def test_times_are_written_like_sparks(text: str, milliseconds: int) -> None:
    assert parse(maxTriggerDelay=text).max_trigger_delay_ms == milliseconds


def test_what_changes_nothing_is_noted() -> None:
    options = parse(
        kafkaConsumer__pollTimeoutMs="512",
        fetchOffset__numRetries="3",
        fetchOffset__retryIntervalMs="10",
        groupIdPrefix="mine",
        maxTriggerDelay="1m",
        kafka__group__id="g",
    )
    notes = ignored_options(options, is_stream=True)
    assert [note.split(":")[0] for note in notes] == [*SPARK_ONLY, "maxTriggerDelay"]
    assert not ignored_options(parse(), is_stream=True)


def test_a_batch_read_has_no_triggers() -> None:
    options = parse(maxOffsetsPerTrigger="5", positions="group", minOffsetsPerTrigger="4")
    assert ignored_options(options, is_stream=False) == [
        "maxOffsetsPerTrigger: only for streams",
        "minOffsetsPerTrigger: only for streams",
        "positions: only for streams",
    ]


def test_what_spark_adds_to_a_table_is_left_alone() -> None:
    own = "provider owner path location comment external is_managed_location table_type collation"
    added = dict.fromkeys(own.split(), "x")
    options = parse(**added, option__subscribe="a", topic="for writing")
    assert options.topics == ("a", "b")
    assert options.given == {"subscribe"}


def test_secrets_are_in_no_text() -> None:
    assert "secret" not in repr(parse(kafka__client__id="secret"))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"subscribe": "a"}, "kafka.bootstrap.servers is required"),
        ({"kafka.bootstrap.servers": "h:1"}, "subscribe is required"),
        ({"kafka.bootstrap.servers": "h:1", "subscribe": " , "}, "subscribe is required"),
        ({**NEEDED, "startingofsets": "latest"}, "did you mean startingOffsets"),
        ({**NEEDED, "group.id": "g"}, "did you mean kafka.group.id"),
        ({**NEEDED, "xyz": "1"}, "known: subscribe"),
        ({**NEEDED, "subscribePattern": "a.*"}, "only one of subscribe, subscribePattern can"),
        ({**NEEDED, "assign": '{"a":[0]}'}, "only one of subscribe, assign can be given"),
        ({**SERVERS, "topic": "a"}, "subscribe is required.*topic says where to write"),
        ({**SERVERS, "subscribePattern": " "}, "subscribePattern is empty"),
        ({**SERVERS, "subscribePattern": "(a"}, "subscribePattern '.a' is not supported: unclosed"),
        ({**SERVERS, "assign": "a"}, "assign must be JSON like"),
        ({**SERVERS, "assign": "{}"}, "assign names no partition"),
        ({**SERVERS, "assign": '{"a":[true]}'}, "assign must be JSON like"),
        ({**SERVERS, "assign": '{"a":["0"]}'}, "assign must be JSON like"),
        (
            {**SERVERS, "assign": '{"a":[0]}', "startingOffsets": '{"a":{"1":5}}'},
            "startingOffsets names a-1, which assign does not",
        ),
        (
            {**NEEDED, "startingTimestamp": "-3"},
            "startingTimestamp must be milliseconds since 1970",
        ),
        ({**NEEDED, "startingOffsetsByTimestamp": "5"}, "startingOffsetsByTimestamp must be JSON"),
        ({**NEEDED, "endingOffsetsByTimestamp": '{"a":{"0":-3}}'}, "-3 is not a timestamp of a-0"),
        ({**NEEDED, "startingOffsetsByTimestampStrategy": "first"}, "one of error, latest, not"),
        ({**NEEDED, "startingTimestamp": "5", "endingTimestamp": "4"}, "5 is after endingTimes"),
        (
            {**NEEDED, "startingOffsets": '{"a":{"0":5}}', "endingOffsets": '{"a":{"0":4}}'},
            "a-0: startingOffsets 5 is after endingOffsets 4",
        ),
        ({**NEEDED, "minPartitions": "0"}, "minPartitions must be a positive number"),
        ({**NEEDED, "maxRecordsPerPartition": "x"}, "maxRecordsPerPartition must be a positive"),
        (
            {**NEEDED, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            "minOffsetsPerTrigger=5 is above maxOffsetsPerTrigger=4",
        ),
        ({**NEEDED, "maxTriggerDelay": "5 weeks"}, "maxTriggerDelay must be a time like 15m"),
        ({**NEEDED, "failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
        ({**NEEDED, "groupMode": "alone"}, "one of member, commitOnly, none, not 'alone'"),
        ({**NEEDED, "positions": "mine"}, "one of group, checkpoint, fail, not 'mine'"),
        ({**NEEDED, "startingOffsets": "committed"}, "committed needs kafka.group.id"),
        ({**NEEDED, "columns": ""}, "columns is empty"),
        ({**NEEDED, "columns": "value,key,value"}, "columns: value is named twice"),
        ({**NEEDED, "columns": "values"}, "columns: no column 'values'"),
        ({**NEEDED, "commitMetadata": "x" * 1001}, "more than 1000 characters"),
        ({**NEEDED, "kafka.auto.offset.reset": "latest"}, "set startingOffsets"),
        ({**NEEDED, "kafka.enable.auto.commit": "true"}, "only then"),
        ({**NEEDED, "kafka.key.deserializer": "x"}, "keys are binary"),
        ({**NEEDED, "kafka.value.deserializer": "x"}, "values are binary"),
        ({**NEEDED, "kafka.interceptor.classes": "x"}, "interceptor"),
        ({**NEEDED, "kafka.security.providers": "x"}, "does not support; remove it$"),
        ({"kafka.bootstrap.server": "h:1"}, "did you mean bootstrap.servers"),
        ({**NEEDED, "kafka.session.timeout": "6000"}, "did you mean session.timeout.ms"),
        ({**NEEDED, "kafka.session.timeout.ms": "long"}, "session.timeout.ms must be"),
        ({**NEEDED, "kafka.isolation.level": "read_comitted"}, "isolation.level"),
        ({"kafka.bootstrap.servers": "nowhere", "subscribe": "a"}, "not host:port"),
        ({**NEEDED, "maxOffsetsPerTrigger": "0"}, "positive number"),
        ({**NEEDED, "maxOffsetsPerTrigger": ""}, "positive number"),
        ({**NEEDED, "maxOffsetsPerTrigger": "-3"}, "positive number"),
        ({**NEEDED, "maxOffsetsPerTrigger": "many"}, "positive number"),
        ({**NEEDED, "includeHeaders": "yes"}, "true or false"),
        ({**NEEDED, "startingOffsets": "newest"}, "must be earliest, latest, committed or JSON"),
        ({**NEEDED, "startingOffsets": '{"a":{"0":1.5}}'}, "or JSON"),
        ({**NEEDED, "startingOffsets": '{"a":{"0":-3}}'}, "-3 is not an offset"),
        ({**NEEDED, "startingOffsets": '{"c":{"0":1}}'}, "subscribe does not"),
        ({**NEEDED, "endingOffsets": "earliest"}, "must be latest or JSON"),
        ({**NEEDED, "endingOffsets": '{"a":{"0":-2}}'}, "-2 is not an offset"),
    ],
)
def test_what_is_wrong_is_named(raw: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_options(raw)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({}, r"kafka\.group\.id is required"),
        ({"groupMode": "commitOnly"}, r"kafka\.group\.id is required"),
        ({"kafka__group__id": "g", "endingOffsets": "latest"}, "endingOffsets is not valid in a s"),
        ({"kafka__group__id": "g", "endingTimestamp": "5"}, "endingTimestamp is not valid"),
        ({"kafka__group__id": "g", "endingOffsetsByTimestamp": '{"a":{"0":1}}'}, "has no end"),
        (
            {"kafka__group__id": "g", "assign": '{"a":[0]}', "groupMode": "member"},
            "group assigns",
        ),
        ({"groupMode": "none", "exclusive": "true"}, "exclusive=true needs a group"),
        ({"groupMode": "none", "positions": "group"}, "positions=group needs a group"),
    ],
)
def test_what_a_stream_cannot_have(more: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        check_stream_options(parse(**more))


def test_a_stream_without_a_group() -> None:
    check_stream_options(parse(groupMode="none"))


@pytest.mark.parametrize(
    ("offsets", "says"),
    [("latest", "it reads nothing"), ('{"a":{"0":5,"1":-1}}', "a-1 cannot be latest")],
)
def test_a_batch_read_cannot_start_at_its_end(offsets: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        check_batch_options(parse(startingOffsets=offsets))


def test_each_option_has_one_name() -> None:
    names = [name.lower() for name in (*OPTIONS, *SPARK_ONLY)]
    assert len(names) == len(set(names))
