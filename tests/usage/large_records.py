"""Records near the limits: those that fit arrive, the others are refused with the reason.

Prints:
    sent and read 1000000 bytes
    2000000 bytes: MESSAGE_TOO_LARGE max.request.size named: True
    2000000 bytes, allowed by the client: MESSAGE_TOO_LARGE
    and after that 'small' arrived
"""

from __future__ import annotations

from kohort import Consumer, KafkaError, Producer, TopicPartition
from tests.usage.around import start, topic_with


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap)
    producer = Producer(bootstrap_servers=bootstrap)
    producer.send(topic, b"x" * 1_000_000).result(30)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        print("sent and read", len(next(iter(consumer)).value), "bytes")
    try:
        producer.send(topic, b"x" * 2_000_000)
    except KafkaError as error:
        print("2000000 bytes:", error.name, "max.request.size named:", "max.request" in str(error))
    producer.close()

    with Producer(bootstrap_servers=bootstrap, max_request_size=10_000_000) as producer:
        refused = producer.send(topic, b"x" * 2_000_000).exception(30)
        assert isinstance(refused, KafkaError)
        print("2000000 bytes, allowed by the client:", refused.name)
        where = producer.send(topic, b"small").result(30)
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), where.offset)
        print("and after that", repr(next(iter(consumer)).value.decode()), "arrived")


if __name__ == "__main__":
    start(main)
