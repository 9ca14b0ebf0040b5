"""The broker is restarted while a producer and a consumer run: they only have to wait.

Prints:
    before: 100 read
    restart the broker and press Enter
    after: 200 read, each once: True
    in order: True
"""

from __future__ import annotations

from kohort import Consumer, Producer
from tests.usage.around import Protocol, start, topic_with, unique


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic = topic_with(bootstrap)
    read: list[int] = []
    with (
        Producer(bootstrap_servers=bootstrap) as producer,
        Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=unique("durable"),
            group_protocol=protocol,
            auto_offset_reset="earliest",
        ) as consumer,
    ):

        def read_until(count: int) -> None:
            while len(read) < count:
                for records in consumer.poll(timeout_ms=1_000).values():
                    read.extend(int(record.value) for record in records)

        for number in range(100):
            producer.send(topic, str(number).encode())
        read_until(100)
        print(f"before: {len(read)} read")
        input("restart the broker and press Enter\n")
        for number in range(100, 200):
            producer.send(topic, str(number).encode())
        producer.flush()
        read_until(200)
    print(f"after: {len(read)} read, each once:", len({*read}) == len(read))
    print("in order:", read == sorted(read))


if __name__ == "__main__":
    start(main)
