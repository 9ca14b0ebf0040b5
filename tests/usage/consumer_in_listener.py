"""A listener reads a table with its own consumer before its partitions are processed.

It may not poll the consumer that calls it, which would wait for the listener itself.

Prints:
    table read: 5
    refused: poll was called inside a listener of the same consumer, ...
    orders read: 10
"""

from __future__ import annotations

from kohort import Consumer, LocalProtocolError, RebalanceListener, TopicPartition
from tests.usage.around import Protocol, start, topic_with, unique


class LoadsTable(RebalanceListener):
    """Reads a whole topic when partitions of another topic are assigned."""

    def __init__(self, bootstrap: str, table: str, consumer: Consumer) -> None:
        self._bootstrap, self._table, self._consumer = bootstrap, table, consumer

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        place = TopicPartition(self._table, 0)
        rows = 0
        with Consumer(bootstrap_servers=self._bootstrap, auto_offset_reset="earliest") as reader:
            reader.assign([place])
            (end,) = reader.end_offsets([place]).values()
            while rows < end:
                rows += sum(len(records) for records in reader.poll(timeout_ms=1_000).values())
        print("table read:", rows)
        try:
            self._consumer.poll()
        except LocalProtocolError as error:
            print("refused:", error)


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    table, orders = topic_with(bootstrap, 5), topic_with(bootstrap, 10)
    with Consumer(
        bootstrap_servers=bootstrap,
        group_id=unique("joiners"),
        group_protocol=protocol,
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe([orders], listener=LoadsTable(bootstrap, table, consumer))
        read = 0
        while read < 10:
            read += sum(len(records) for records in consumer.poll(timeout_ms=1_000).values())
        print("orders read:", read)


if __name__ == "__main__":
    start(main)
