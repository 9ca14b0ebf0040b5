"""Sensor readings with `acks=0` into a topic that accepts batches of at most 50,000 bytes.

With `acks=0` the broker sends no answer, so a refused batch is lost silently. Then no batch may be
larger than `batch_size`, however many records wait.

Prints:
    5000 of 5000 records are in the topic
"""

from __future__ import annotations

from contextlib import suppress

from kohort import AdminClient, Producer, TopicPartition
from tests.usage.around import start, topic_with, until


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, configs={"max.message.bytes": "50000"})
    with Producer(bootstrap_servers=bootstrap, acks=0) as producer:
        for _ in range(5_000):
            producer.send(topic, b"x" * 100)
    place = TopicPartition(topic, 0)
    with AdminClient(bootstrap_servers=bootstrap) as admin:

        def written() -> int:
            return admin.list_offsets({place: -1})[place] or 0

        with suppress(TimeoutError):
            until(lambda: written() == 5_000, "all records are there")
        print(written(), "of 5000 records are in the topic")


if __name__ == "__main__":
    start(main)
