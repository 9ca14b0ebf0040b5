"""A typo in the topic's name, at a broker that makes no topics: `send` says so, in time.

The error names the topic and the broker's own reason, and the producer goes on to serve others.

Prints:
    typo: names the topic: True, the reason: True
    the right topic: offset 0
"""

from __future__ import annotations

from kohort import KafkaError, Producer
from tests.usage.around import start, topic_with, unique


def main(bootstrap: str) -> None:
    topic, typo = topic_with(bootstrap), unique("ordres")
    with Producer(bootstrap_servers=bootstrap, max_block_ms=3_000) as producer:
        try:
            producer.send(typo, b"x").result(60)
        except KafkaError as error:
            reason = "UNKNOWN_TOPIC_OR_PARTITION" in str(error)
            print(f"typo: names the topic: {typo in str(error)}, the reason: {reason}")
        print("the right topic: offset", producer.send(topic, b"x").result(60).offset)


if __name__ == "__main__":
    start(main)
