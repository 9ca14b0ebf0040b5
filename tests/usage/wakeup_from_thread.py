"""Another thread ends a waiting `poll`, a hundred times, and the consumer continues each time.

Prints:
    100 polls were woken
    then read 5
"""

from __future__ import annotations

import threading

from kohort import Consumer
from tests.usage.around import start, topic_with, unique, write


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap)
    with Consumer(
        topic, bootstrap_servers=bootstrap, group_id=unique("woken"), auto_offset_reset="earliest"
    ) as consumer:
        while not consumer.assignment():
            consumer.poll(timeout_ms=100)
        woken = 0
        for _ in range(100):
            thread = threading.Thread(target=consumer.wakeup)
            thread.start()
            consumer.poll(timeout_ms=3_600_000)
            thread.join()
            woken += 1
        print(woken, "polls were woken")
        write(bootstrap, topic, [str(number) for number in range(5)])
        read = 0
        while read < 5:
            read += sum(len(records) for records in consumer.poll(timeout_ms=1_000).values())
        print("then read", read)


if __name__ == "__main__":
    start(main)
