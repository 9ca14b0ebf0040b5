"""A bug in a rebalance listener: `poll` raises the exception, and the consumer can be closed.

The application sees its own exception, with its own type, and the group is not blocked by it.

Prints:
    poll raised KeyError: 'cache'
    closed, and another member reads 10
"""

from __future__ import annotations

from kohort import Consumer, RebalanceListener, TopicPartition
from kohort.client import ConsumerSettings
from tests.usage.around import Protocol, start, topic_with, unique


class Buggy(RebalanceListener):
    """Reads from a cache that was never filled."""

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        raise KeyError("cache")


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 10), unique("buggy")
    settings: ConsumerSettings = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
    }
    try:
        with Consumer(**settings) as consumer:
            consumer.subscribe([topic], listener=Buggy())
            for _ in range(60):
                consumer.poll(timeout_ms=1_000)
    except KeyError as error:
        print("poll raised KeyError:", error)
    with Consumer(topic, **settings) as consumer:
        read = 0
        while read < 10:
            read += sum(len(records) for records in consumer.poll(timeout_ms=1_000).values())
        print("closed, and another member reads", read)


if __name__ == "__main__":
    start(main)
