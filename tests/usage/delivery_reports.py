"""Three ways to learn where a record went: `get`, a callback, and an errback, as in kafka-python.

Prints:
    get: partition 0 offset 0
    callback: partition 0 offset 1
    errback: MESSAGE_TOO_LARGE
    acknowledged in order: True
"""

from __future__ import annotations

from kohort import KafkaError, Producer
from kohort.client import RecordMetadata
from tests.usage.around import start, topic_with


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, configs={"max.message.bytes": "1000"})
    lines: list[str] = []

    def delivered(where: RecordMetadata) -> None:
        lines.append(f"callback: partition {where.partition} offset {where.offset}")

    def failed(error: BaseException) -> None:
        lines.append(f"errback: {error.name if isinstance(error, KafkaError) else error}")

    with Producer(bootstrap_servers=bootstrap) as producer:
        where = producer.send(topic, b"first").get(timeout=30)
        print(f"get: partition {where.partition} offset {where.offset}")
        producer.send(topic, b"second").add_callback(delivered).add_errback(failed)
        producer.flush()
        producer.send(topic, b"x" * 5_000).add_callback(delivered).add_errback(failed)
        producer.flush()
        print(*lines, sep="\n")

        offsets: list[int] = []
        for _ in range(100):
            future = producer.send(topic, b"order")
            future.add_callback(lambda where: offsets.append(where.offset))
        producer.flush()
    print("acknowledged in order:", offsets == sorted(offsets) and len(offsets) == 100)


if __name__ == "__main__":
    start(main)
