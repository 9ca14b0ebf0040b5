"""Exactly once into a database: results and offsets in one transaction, `seek` on assignment.

The first program dies halfway; the second continues at the offset in the database, not at the
group's. Each of 200 records is in the table once.

Prints:
    died after 120
    rows 200, different 200
    stored with the group: {}
"""

from __future__ import annotations

import sqlite3

from kohort import Consumer, RebalanceListener, TopicPartition
from tests.usage.around import Protocol, start, stored, topic_with, unique


class FromDatabase(RebalanceListener):
    """Seeks each partition to its offset in the database."""

    def __init__(self, consumer: Consumer, database: sqlite3.Connection) -> None:
        self.consumer, self.database = consumer, database

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        for partition in partitions:
            found = self.database.execute(
                "SELECT offset FROM positions WHERE number = ?", (partition.partition,)
            ).fetchone()
            self.consumer.seek(partition, found[0] if found else 0)


def consume(bootstrap: str, topic: str, group: str, protocol: Protocol, dies_after: int) -> None:
    database = sqlite3.connect(f"file:{topic}?mode=memory&cache=shared", uri=True)
    with Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        enable_auto_commit=False,
        max_poll_records=10,
    ) as consumer:
        consumer.subscribe([topic], listener=FromDatabase(consumer, database))
        rows = 0
        while rows < dies_after:
            for partition, records in consumer.poll(timeout_ms=1_000).items():
                with database:
                    values = [(record.value.decode(),) for record in records]
                    database.executemany("INSERT INTO results VALUES (?)", values)
                    position = (partition.partition, records[-1].offset + 1)
                    database.execute("REPLACE INTO positions VALUES (?, ?)", position)
            rows = database.execute("SELECT count(*) FROM results").fetchone()[0]
        if rows < 200:
            raise RuntimeError(f"died after {rows}")


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 200, partitions=2), unique("exactly-once")
    database = sqlite3.connect(f"file:{topic}?mode=memory&cache=shared", uri=True)
    with database:
        database.execute("CREATE TABLE results (value TEXT)")
        database.execute("CREATE TABLE positions (number INTEGER PRIMARY KEY, offset INTEGER)")
    try:
        consume(bootstrap, topic, group, protocol, dies_after=120)
    except RuntimeError as error:
        print(error)
    consume(bootstrap, topic, group, protocol, dies_after=200)
    rows = database.execute("SELECT count(*), count(DISTINCT value) FROM results").fetchone()
    print(f"rows {rows[0]}, different {rows[1]}")
    print("stored with the group:", stored(bootstrap, group))


if __name__ == "__main__":
    start(main)
