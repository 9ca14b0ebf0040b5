"""An unclosed consumer without references: a warning is issued, and it leaves the group.

Its partitions go to the next consumer at once instead of after `max_poll_interval_ms`.

Prints:
    warned: unclosed Consumer
    threads left: 0
    the next consumer read 10
"""

from __future__ import annotations

import gc
import threading
import warnings

from kohort import Consumer
from tests.usage.around import Protocol, start, topic_with, unique, until


def forget(bootstrap: str, topic: str, group: str, protocol: Protocol) -> None:
    consumer = Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    while not consumer.assignment():
        consumer.poll(timeout_ms=100)


def threads() -> int:
    return sum("kohort" in thread.name for thread in threading.enumerate())


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 10), unique("forgotten")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        forget(bootstrap, topic, group, protocol)
        gc.collect()
    ours = [each for each in caught if "Consumer" in str(each.message)]
    kinds = {each.category for each in ours}
    print("warned:", "unclosed Consumer" if kinds == {ResourceWarning} else kinds)
    until(lambda: threads() == 0, "the thread ends")
    print("threads left:", threads())

    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
    ) as consumer:
        read = 0
        while read < 10:
            read += sum(len(records) for records in consumer.poll(timeout_ms=1_000).values())
        print("the next consumer read", read)


if __name__ == "__main__":
    start(main)
