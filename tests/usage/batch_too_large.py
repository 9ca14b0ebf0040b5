"""A topic accepts batches of at most 2,000 bytes; the producer makes batches of 16 KiB.

The records are small, and too large only together. The producer splits the batch, as Java's does,
and all records arrive, in order.

Prints:
    delivered 100, failed 0
    in order: True
"""

from __future__ import annotations

from kohort import Producer
from tests.usage.around import start, topic_with, values_in


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, configs={"max.message.bytes": "2000"})
    with Producer(bootstrap_servers=bootstrap, linger_ms=200) as producer:
        deliveries = [producer.send(topic, f"{number:0100}".encode()) for number in range(100)]
        producer.flush()
    failed = [each for each in deliveries if each.exception() is not None]
    print(f"delivered {len(deliveries) - len(failed)}, failed {len(failed)}")
    print("in order:", [int(value) for value in values_in(bootstrap, topic)] == list(range(100)))


if __name__ == "__main__":
    start(main)
