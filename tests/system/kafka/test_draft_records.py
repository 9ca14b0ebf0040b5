"""Kafka's coordinator passes over records that are ours alone."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, Producer

from kohort.broker.coordination.coordinator import partition_of
from kohort.wire.group_log import encode_record
from kohort.wire.messages.group_config_records import (
    GroupConfigEntry,
    GroupConfigKey,
    GroupConfigValue,
)
from tests.group.coordinator.draft.draft_dialogue import DraftDialogue
from tests.real_kafka.broker import SETTINGS, RealKafka
from tests.system.kafka.test_group_log import commit_in_a_group

GROUP = "beside-a-draft-group"


def test_d15_k57_kafka_loads_a_log_with_records_of_ours_in_it(tmp_path: Path) -> None:
    """A draft group, and settings of a group, which Kafka keeps elsewhere."""
    ours = DraftDialogue()
    ours.steady("a", "b")
    setting = GroupConfigEntry(name="consumer.session.timeout.ms", value="50000")
    configs = GroupConfigValue(configs=(setting,))
    log = [*ours.log, encode_record(GroupConfigKey(group=GROUP), configs)]
    partition = partition_of(GROUP, int(SETTINGS["offsets.topic.num.partitions"]))
    with RealKafka(tmp_path) as kafka:
        commit_in_a_group(kafka, topic="beside", group=GROUP)
        # Kafka takes records for its own topics only from who says to be an admin client.
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "client.id": "__admin_client"}
        producer = Producer(settings)
        for key, value in log:
            producer.produce("__consumer_offsets", value, key, partition)
        producer.produce("beside", b"second")
        assert producer.flush(30) == 0
        del producer
        kafka.restart()
        assert read_on(kafka) == (1, b"second")
        output = kafka.output.read_text()
        assert "30001" in output  # it says what it passes over
        assert "30002" in output


def read_on(kafka: RealKafka) -> tuple[int | None, bytes | str | None]:
    """What comes after the position that the group has committed."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": GROUP})
    try:
        consumer.subscribe(["beside"])
        message = consumer.poll(60)  # the broker has only begun to read its logs
        assert message is not None
        assert message.error() is None
        return message.offset(), message.value()
    finally:
        consumer.close()
