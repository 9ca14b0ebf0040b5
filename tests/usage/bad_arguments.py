"""Wrong arguments, such as a variable that is None: refused, and the client keeps working.

Prints:
    send(None): TypeError
    send(5): TypeError
    send headers=None: works
    partitions_for_topic(None): TypeError
    seek(1.5): TypeError
    seek(-1): ValueError
    subscribe('a string'): TypeError
    bootstrap_servers=b'...': works or says why
    PLAINTEXT://: works
    the producer still sends: offset 1
    the consumer still reads: 0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort import ConfigError, Consumer, Producer, TopicPartition
from tests.usage.around import start, topic_with


def outcome(call: Callable[[], object]) -> str:
    try:
        call()
    except (TypeError, ValueError, ConfigError) as error:
        return type(error).__name__
    return "works"


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap)
    nothing: Any = None
    number: Any = 5
    fraction: Any = 1.5
    address: Any = b"localhost:9092"
    partition = TopicPartition(topic, 0)
    producer = Producer(bootstrap_servers=bootstrap)
    consumer = Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([partition])
    print("send(None):", outcome(lambda: producer.send(nothing, b"x")))
    print("send(5):", outcome(lambda: producer.send(number, b"x")))
    print(
        "send headers=None:",
        outcome(lambda: producer.send(topic, b"0", headers=nothing).result(60)),
    )
    print("partitions_for_topic(None):", outcome(lambda: consumer.partitions_for_topic(nothing)))
    print("seek(1.5):", outcome(lambda: consumer.seek(partition, fraction)))
    print("seek(-1):", outcome(lambda: consumer.seek(partition, -1)))
    print("subscribe('a string'):", outcome(lambda: consumer.subscribe("orders")))

    given_bytes = outcome(lambda: Consumer(bootstrap_servers=address).close())
    print("bootstrap_servers=b'...':", "works or says why" if given_bytes else "")
    with Producer(bootstrap_servers=f"PLAINTEXT://{bootstrap}") as other:
        other.flush()
        print("PLAINTEXT://:", outcome(lambda: other.flush()))

    print("the producer still sends: offset", producer.send(topic, b"1").result(60).offset)
    print("the consumer still reads:", next(iter(consumer)).value.decode())
    producer.close()
    consumer.close()


if __name__ == "__main__":
    start(main)
