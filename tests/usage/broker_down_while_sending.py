"""The broker is down while records are sent: they wait in the producer, and arrive in order, once.

Prints:
    sent 10
    stop the broker and press Enter
    100 more are waiting: True
    start the broker and press Enter
    110 arrived, in order and once: True
"""

from __future__ import annotations

from kohort import Producer
from tests.usage.around import start, topic_with, values_in


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            producer.send(topic, str(number).encode())
        producer.flush()
        print("sent 10")
        input("stop the broker and press Enter\n")
        waiting = [producer.send(topic, str(10 + number).encode()) for number in range(100)]
        print("100 more are waiting:", not any(future.done() for future in waiting))
        input("start the broker and press Enter\n")
        producer.flush(60)
    values = [int(value) for value in values_in(bootstrap, topic)]
    print(len(values), "arrived, in order and once:", values == [*range(110)])


if __name__ == "__main__":
    start(main)
