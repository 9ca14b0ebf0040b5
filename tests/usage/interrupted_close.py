"""Ctrl-C, and again while the consumer closes: `close` is interrupted, and another call resumes.

The member still leaves its group at once, and its read offsets are committed.

Prints:
    interrupted while closing
    closed
    members left: 0
    stored: {0: 10}
"""

from __future__ import annotations

import signal

from kohort import AdminClient, Consumer, RebalanceListener, TopicPartition
from tests.usage.around import Protocol, start, stored, topic_with, unique


class Impatient(RebalanceListener):
    """Presses Ctrl-C while the consumer gives up its partitions."""

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        signal.raise_signal(signal.SIGINT)


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 10), unique("impatient")
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
    )
    consumer.subscribe([topic], listener=Impatient())
    read = 0
    while read < 10:
        read += sum(len(records) for records in consumer.poll(timeout_ms=1_000).values())
    try:
        consumer.close()
    except KeyboardInterrupt:
        print("interrupted while closing")
    consumer.close()
    print("closed")
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        print("members left:", len(admin.describe_groups([group])[group].members))
    print("stored:", stored(bootstrap, group))


if __name__ == "__main__":
    start(main)
