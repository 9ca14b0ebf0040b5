from __future__ import annotations

import pytest

from kohort.spark.options import (
    OptionError,
    SourceOptions,
    check_stream_options,
    parse_options,
)
from kohort.types import TopicPartition

NEEDED = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "a, b"}


def parse(**more: str) -> SourceOptions:
    return parse_options(
        {**NEEDED, **{key.replace("__", "."): value for key, value in more.items()}}
    )


def test_all_options() -> None:
    options = parse(
        STARTINGOFFSETS='{"a":{"0":23,"1":-1},"b":{"2":-2}}',
        endingOffsets="latest",
        maxOffsetsPerTrigger="500",
        includeHeaders="True",
        kafka__group__id="g",
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
    assert options.include_headers
    assert options.group_id == "g"
    assert options.settings == {"group.id": "g", "session.timeout.ms": "6000"}


def test_defaults() -> None:
    options = parse()
    assert (options.starting_offsets, options.ending_offsets) == (None, None)
    assert (options.max_offsets_per_trigger, options.include_headers) == (None, False)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"subscribe": "a"}, "kafka.bootstrap.servers is required"),
        ({"kafka.bootstrap.servers": "h:1"}, "subscribe is required"),
        ({"kafka.bootstrap.servers": "h:1", "subscribe": " , "}, "subscribe is required"),
        ({**NEEDED, "startingofsets": "latest"}, "did you mean startingOffsets"),
        ({**NEEDED, "group.id": "g"}, "did you mean kafka.group.id"),
        ({**NEEDED, "xyz": "1"}, "known: subscribe"),
        ({**NEEDED, "subscribePattern": "a.*"}, "subscribePattern is an option of Spark's own"),
        ({**NEEDED, "kafka.auto.offset.reset": "latest"}, "set startingOffsets"),
        ({**NEEDED, "kafka.enable.auto.commit": "true"}, "only then"),
        ({**NEEDED, "kafka.key.deserializer": "x"}, "keys are binary"),
        ({**NEEDED, "kafka.value.deserializer": "x"}, "values are binary"),
        ({**NEEDED, "kafka.interceptor.classes": "x"}, "interceptor"),
        ({"kafka.bootstrap.server": "h:1"}, "did you mean bootstrap.servers"),
        ({**NEEDED, "kafka.session.timeout": "6000"}, "did you mean session.timeout.ms"),
        ({**NEEDED, "kafka.session.timeout.ms": "long"}, "session.timeout.ms must be"),
        ({**NEEDED, "kafka.isolation.level": "read_committed"}, "isolation.level"),
        ({"kafka.bootstrap.servers": "nowhere", "subscribe": "a"}, "not host:port"),
        ({**NEEDED, "maxOffsetsPerTrigger": "0"}, "positive number"),
        ({**NEEDED, "maxOffsetsPerTrigger": "-3"}, "positive number"),
        ({**NEEDED, "maxOffsetsPerTrigger": "many"}, "positive number"),
        ({**NEEDED, "includeHeaders": "yes"}, "true or false"),
        ({**NEEDED, "startingOffsets": "newest"}, "must be earliest, latest or JSON"),
        ({**NEEDED, "startingOffsets": '{"a":{"0":1.5}}'}, "or JSON"),
        ({**NEEDED, "startingOffsets": '{"a":{"0":-3}}'}, "-3 is no offset"),
        ({**NEEDED, "startingOffsets": '{"c":{"0":1}}'}, "subscribe does not"),
        ({**NEEDED, "endingOffsets": "earliest"}, "must be latest or JSON"),
        ({**NEEDED, "endingOffsets": '{"a":{"0":-2}}'}, "-2 is no offset"),
    ],
)
def test_what_is_wrong_is_named(raw: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_options(raw)


def test_a_stream_needs_a_group() -> None:
    with pytest.raises(OptionError, match=r"kafka\.group\.id is required"):
        check_stream_options(parse())


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match="no end"):
        check_stream_options(parse(kafka__group__id="g", endingOffsets="latest"))
