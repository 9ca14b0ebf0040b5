"""Commit a dict of plain offsets, as a program keeps them: no wrapper needed.

Prints:
    committed {0: 7, 1: 3}
    read back 7 3
    [0] -> -5 was refused: ValueError
    committed {0: 7, 1: 3}
"""

from __future__ import annotations

from kohort import Consumer, TopicPartition
from tests.usage.around import start, stored, topic_with, unique


def main(bootstrap: str) -> None:
    topic, group = topic_with(bootstrap, 20, partitions=2), unique("billing")
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Consumer(bootstrap_servers=bootstrap, group_id=group) as consumer:
        consumer.assign([zero, one])
        consumer.commit({zero: 7, one: 3})
        print("committed", dict(sorted(stored(bootstrap, group).items())))
        found = consumer.committed(zero, one)
        print("read back", found[zero].offset, found[one].offset)
        try:
            consumer.commit({zero: -5})
        except ValueError as error:
            print("[0] -> -5 was refused:", type(error).__name__)
    print("committed", dict(sorted(stored(bootstrap, group).items())))


if __name__ == "__main__":
    start(main)
