"""Commit in `on_partitions_revoked`, the last moment before another member takes over.

A second consumer joins while the first one has uncommitted records. No record is read twice.

Prints:
    first: revoked committed what was read
    400 records, each once: True
"""

from __future__ import annotations

import threading

from kohort import Consumer, OffsetAndMetadata, RebalanceListener, TopicPartition
from tests.usage.around import Protocol, start, topic_with, unique, until, write


class CommitsWhatWasRead(RebalanceListener):
    """Commits the positions of revoked partitions."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer, self.read, self.revoked = consumer, dict[TopicPartition, int](), 0

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        offsets = {each: OffsetAndMetadata(self.read[each]) for each in partitions & {*self.read}}
        if offsets:
            self.consumer.commit(offsets)
            self.revoked += len(offsets)

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Do not commit partitions that now belong to another member."""


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 200, partitions=4), unique("handover")
    seen: list[tuple[int, int]] = []
    stop = threading.Event()
    listeners: list[CommitsWhatWasRead] = []

    def consume() -> None:
        with Consumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            listeners.append(listener := CommitsWhatWasRead(consumer))
            consumer.subscribe([topic], listener=listener)
            while not stop.is_set():
                for partition, records in consumer.poll(timeout_ms=100).items():
                    seen.extend((each.partition, each.offset) for each in records)
                    listener.read[partition] = records[-1].offset + 1

    threads = [threading.Thread(target=consume) for _ in range(2)]
    threads[0].start()
    until(lambda: len(seen) >= 200, "the first read all there was")
    threads[1].start()
    until(lambda: listeners[0].revoked > 0, "the first gave partitions up")
    print("first: revoked committed what was read")
    write(bootstrap, topic, [str(number) for number in range(200)], partitions=4)
    until(lambda: len({*seen}) >= 400, "the rest is read")
    stop.set()
    for thread in threads:
        thread.join()
    print(len(seen), "records, each once:", len({*seen}) == len(seen))


if __name__ == "__main__":
    start(main)
