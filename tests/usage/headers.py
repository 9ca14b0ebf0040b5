"""Headers for tracing: set by kohort and read by kafka-python, and vice versa.

Names may repeat, values may be null or empty, and a record may have none.

Prints:
    kafka-python reads: [('trace', b'1'), ('trace', b'2'), ('empty', b''), ('ä', b'\\xff')]
    kafka-python reads: []
    kohort reads: [('trace', b'3'), ('null', None)]
"""

from __future__ import annotations

import confluent_kafka as confluent
from kafka import KafkaConsumer
from kafka import TopicPartition as TheirPartition

from kohort import Consumer, Producer, TopicPartition
from tests.usage.around import start, topic_with


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap)
    with Producer(bootstrap_servers=bootstrap) as producer:
        sent = [("trace", b"1"), ("trace", b"2"), ("empty", b""), ("ä", b"\xff")]
        producer.send(topic, b"x", headers=sent)
        producer.send(topic, b"y")
    theirs = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    theirs.assign([TheirPartition(topic, 0)])
    for _ in range(2):
        print("kafka-python reads:", [*next(theirs).headers])
    theirs.close()

    librdkafka = confluent.Producer({"bootstrap.servers": bootstrap})
    librdkafka.produce(topic, b"z", headers=[("trace", b"3"), ("null", None)])
    librdkafka.flush(60)
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 2)
        print("kohort reads:", [*next(iter(consumer)).headers])


if __name__ == "__main__":
    start(main)
