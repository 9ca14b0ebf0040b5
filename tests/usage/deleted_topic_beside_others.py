"""A group of two reads two topics; one is deleted. Reading the other must continue at once.

Prints:
    2 members read both topics
    the other topic went on: 20 records
    a third member joined and each has its part
"""

from __future__ import annotations

import threading

from kohort import Consumer, TopicPartition
from tests.usage.around import Protocol, admin, start, topic_with, unique, until, write


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    kept, gone = topic_with(bootstrap, 20, partitions=4), topic_with(bootstrap, 20, partitions=4)
    group, stop = unique("both"), threading.Event()
    read: dict[str, int] = {kept: 0, gone: 0}
    owned: dict[int, frozenset[TopicPartition]] = {}

    def consume(name: int) -> None:
        with Consumer(
            kept,
            gone,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            metadata_max_age_ms=1_000,
        ) as consumer:
            while not stop.is_set():
                for partition, records in consumer.poll(timeout_ms=100).items():
                    read[partition.topic] += len(records)
                owned[name] = consumer.assignment()

    threads = [threading.Thread(target=consume, args=(number,)) for number in range(3)]
    for thread in threads[:2]:
        thread.start()
    until(lambda: read[kept] >= 20 and read[gone] >= 20, "all is read")
    until(lambda: [len(each) for each in owned.values()] == [4, 4], "both have partitions")
    print("2 members read both topics")
    before = read[kept]
    client = admin(bootstrap)
    client.delete_topics([gone])[gone].result(30)
    write(bootstrap, kept, [str(number) for number in range(20)], partitions=4)
    threads[2].start()
    until(lambda: read[kept] >= before + 20, "the other topic goes on")
    print("the other topic went on:", read[kept] - before, "records")
    until(
        lambda: sorted(len(each) for each in owned.values()) == [1, 1, 2], "the third has its part"
    )
    until(lambda: {each.topic for some in owned.values() for each in some} == {kept}, "it is gone")
    print("a third member joined and each has its part")
    stop.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    start(main)
