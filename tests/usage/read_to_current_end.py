"""Read all current records, then stop: a nightly job, without a group.

The end is looked up first; records written later are left for tomorrow.

Prints:
    the end: 0: 100, 1: 100
    read 200
    positions at the end: True
"""

from __future__ import annotations

from kohort import Consumer, TopicPartition
from tests.usage.around import start, topic_with, write


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, 200, partitions=2)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        numbers = consumer.partitions_for_topic(topic) or frozenset()
        partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
        ends = consumer.end_offsets(partitions)
        print("the end:", ", ".join(f"{each.partition}: {ends[each]}" for each in partitions))
        write(bootstrap, topic, ["late"] * 20, partitions=2)
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        read = 0
        while any(consumer.position(each) < ends[each] for each in partitions):
            for partition, records in consumer.poll(timeout_ms=1_000).items():
                within = [record for record in records if record.offset < ends[partition]]
                read += len(within)
        print("read", read)
        positions = consumer.positions()
        print("positions at the end:", all(positions[each] >= ends[each] for each in partitions))


if __name__ == "__main__":
    start(main)
