"""A fast producer with little memory: `send` waits instead of failing or growing; nothing is lost.

Prints:
    20000 arrived
"""

from __future__ import annotations

from kohort import Producer
from tests.usage.around import start, topic_with, values_in


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap)
    with Producer(bootstrap_servers=bootstrap, buffer_memory=64 * 1024) as producer:
        for number in range(20_000):
            producer.send(topic, f"{number:050}".encode())
    print(len({*values_in(bootstrap, topic)}), "arrived")


if __name__ == "__main__":
    start(main)
