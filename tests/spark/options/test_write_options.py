from __future__ import annotations

import pytest

from kohort.spark.options.source import OptionError
from kohort.spark.options.writer import parse_write_options

NEEDED = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def test_options_of_kafka_go_to_the_producer() -> None:
    raw = {**NEEDED, "Topic": " flights ", "KAFKA.linger.ms": "20", "kafka.client.id": "mine"}
    options = parse_write_options(raw)
    assert options.topic == "flights"
    assert options.settings == {
        "bootstrap.servers": "127.0.0.1:9092",
        "linger.ms": "20",
        "client.id": "mine",
    }


def test_without_a_topic_the_column_says_it() -> None:
    options = parse_write_options(NEEDED)
    assert options.topic is None
    assert options.settings["client.id"] == "kohort-spark-writer"


def test_what_spark_adds_and_what_only_the_source_reads_is_left_alone() -> None:
    added = dict.fromkeys(("checkpointLocation", "path", "provider", "option.topic"), "x")
    read = {"subscribe": "a", "startingOffsets": "latest", "kafka.group.id": "g"}
    assert parse_write_options({**NEEDED, **added, **read, "includeHeaders": "true"}).topic is None


def test_secrets_are_in_no_text() -> None:
    assert "9092" not in repr(parse_write_options(NEEDED))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"topic": "a"}, "kafka.bootstrap.servers is required"),
        ({**NEEDED, "topik": "a"}, "unknown option 'topik'; did you mean topic"),
        ({**NEEDED, "xyz": "1"}, "known: topic, includeHeaders"),
        ({**NEEDED, "topic": "not/legal"}, "topic: topic 'not/legal' is not a topic's name"),
        ({**NEEDED, "topic": ""}, "topic: topic is empty"),
        ({**NEEDED, "includeHeaders": "yes"}, "includeHeaders must be true or false"),
        ({**NEEDED, "kafka.key.serializer": "x"}, "encode them with DataFrame operations"),
        ({**NEEDED, "kafka.value.serializer": "x"}, "encode them with DataFrame operations"),
        ({**NEEDED, "kafka.transactional.id": "x"}, "written at least once"),
        ({**NEEDED, "kafka.acks": "0"}, "no broker would say that it has the rows"),
        (
            {**NEEDED, "kafka.acks": "1", "kafka.enable.idempotence": "true"},
            "enable.idempotence needs acks=all",
        ),
        ({**NEEDED, "kafka.lingr.ms": "5"}, "did you mean linger.ms"),
        ({**NEEDED, "kafka.linger.ms": "soon"}, "linger.ms must be a whole number"),
    ],
)
def test_each_mistake_is_named(raw: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_write_options(raw)
