"""Brokers may create a topic on the first write: the first `send` works at once.

Checking whether a topic exists must not create it; nor does a consumer that may not create topics.

Prints:
    sent to offset 0
    before: None, after asking: None
    offset -1 of a partition that is not there: KafkaError True
"""

from __future__ import annotations

from kohort import AdminClient, Consumer, KafkaError, Producer, TopicPartition
from tests.usage.around import start, topic_with, unique


def main(bootstrap: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        print("sent to offset", producer.send(unique("new"), b"x").result(60).offset)
    name = unique("nobody-made-it")
    with Consumer(bootstrap_servers=bootstrap, allow_auto_create_topics=False) as consumer:
        before = consumer.partitions_for_topic(name)
        print(f"before: {before}, after asking: {consumer.partitions_for_topic(name)}")
        there = topic_with(bootstrap)
        try:
            consumer.end_offsets([TopicPartition(there, 7)], timeout_ms=5_000)
        except KafkaError as error:
            named = there in str(error) and "UNKNOWN_TOPIC_OR_PARTITION" in str(error)
            print("offset -1 of a partition that is not there: KafkaError", named)
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        assert name not in admin.list_topics()


if __name__ == "__main__":
    start(main)
