"""A record that could not be delivered goes to another topic, sent from the delivery callback.

The callback runs on the client's own thread, where `send` must work. The topic accepts at most
1,000 bytes, so the big record fails at the broker.

Prints:
    failed: MESSAGE_TOO_LARGE
    dead letters: big order 5
"""

from __future__ import annotations

from kohort import KafkaError, Producer
from tests.usage.around import start, topic_with, values_in


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, configs={"max.message.bytes": "1000"})
    dead_letters = topic_with(bootstrap)
    with Producer(bootstrap_servers=bootstrap) as producer:

        def failed(number: int, error: BaseException) -> None:
            print("failed:", error.name if isinstance(error, KafkaError) else error)
            producer.send(dead_letters, f"big order {number}".encode())

        for number in range(10):
            value = b"x" * (5_000 if number == 5 else 50)
            delivery = producer.send(topic, value)
            delivery.add_errback(lambda error, number=number: failed(number, error))
        producer.flush()
        producer.flush()
    print("dead letters:", *values_in(bootstrap, dead_letters))


if __name__ == "__main__":
    start(main)
