"""A pool of workers that a listener waits for: offsets stored meanwhile are auto-committed.

`on_partitions_revoked` returns when the current work is done. Each worker stores the offset of its
processed records, so none has to be read again: neither by the member that joins, nor after
`close`.

Prints:
    stored before: 10, in the listener: 50
    the other member begins at 50
    committed after close {0: 60, 1: 60}
"""

from __future__ import annotations

import threading

from kohort import Consumer, RebalanceListener, TopicPartition
from tests.usage.around import Protocol, start, stored, topic_with, unique, until


class Workers(RebalanceListener):
    """Finishes the work on revoked partitions, up to an offset."""

    def __init__(self) -> None:
        self.consumer: Consumer | None = None
        self.up_to = 50
        self.given_up: set[TopicPartition] = set()

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        worker = threading.Thread(target=self.work, args=(partitions,))
        worker.start()
        worker.join()
        self.given_up |= partitions

    def work(self, partitions: frozenset[TopicPartition]) -> None:
        assert self.consumer is not None
        for each in partitions:
            self.consumer.store_offsets({each: self.up_to})


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 200, partitions=2), unique("pool")

    def member() -> Consumer:
        return Consumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_offset_store=False,
        )

    workers = Workers()
    first, second = member(), member()
    workers.consumer = first
    first.subscribe([topic], listener=workers)
    until(lambda: not first.poll(100) and len(first.assignment()) == 2, "all is read")
    for each in first.assignment():
        first.store_offsets({each: 10})
    first.commit()
    print("stored before: 10, in the listener: 50")
    second.subscribe([topic])
    offsets: list[int] = []

    def other_reads() -> bool:
        first.poll(50)
        for records in second.poll(50).values():
            offsets.extend(each.offset for each in records)
        return bool(offsets) and len(first.assignment()) == 1

    until(other_reads, "the other member reads")
    print("the other member begins at", min(offsets))
    second.unsubscribe()
    until(lambda: not first.poll(50) and len(first.assignment()) == 2, "one has all again")
    workers.up_to = 60
    first.close()
    second.close()
    print("committed after close", stored(bootstrap, group))


if __name__ == "__main__":
    start(main)
