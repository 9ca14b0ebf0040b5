"""Kafka's coordinator passes over a draft group in its log (D15)."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, Producer

from kohort.broker.coordinator import partition_of
from tests.group.draft_dialogue import DraftDialogue
from tests.real_kafka.broker import SETTINGS, RealKafka
from tests.real_kafka.test_group_log import commit_in_a_group

GROUP = "beside-a-draft-group"


def test_d15_kafka_loads_a_log_with_a_draft_group_in_it(tmp_path: Path) -> None:
    ours = DraftDialogue()
    ours.steady("a", "b")
    partition = partition_of(GROUP, int(SETTINGS["offsets.topic.num.partitions"]))
    with RealKafka(tmp_path) as kafka:
        commit_in_a_group(kafka, topic="beside", group=GROUP)
        # Kafka takes records for its own topics only from who says to be an admin client.
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "client.id": "__admin_client"}
        producer = Producer(settings)
        for key, value in ours.log:
            producer.produce("__consumer_offsets", value, key, partition)
        producer.produce("beside", b"second")
        assert producer.flush(30) == 0
        del producer
        kafka.restart()
        assert read_on(kafka) == (1, b"second")
        assert "30001" in kafka.output.read_text()  # it says what it passes over


def read_on(kafka: RealKafka) -> tuple[int | None, bytes | str | None]:
    """What comes after the position that the group has committed."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": GROUP})
    try:
        consumer.subscribe(["beside"])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return message.offset(), message.value()
    finally:
        consumer.close()
