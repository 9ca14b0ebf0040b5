"""A typo in the topic's name, with a broker that does not create topics: `send` raises in time.

The error has the topic and the broker's own reason, and the producer keeps working for other
topics. The log does not claim later that the topic exists, because it does not.

Prints:
    typo: names the topic: True, the reason: True
    the right topic: offset 0
    logged once, and no recovery: True
"""

from __future__ import annotations

import logging

from kohort import KafkaError, Producer
from tests.usage.around import start, topic_with, unique


class Kept(logging.Handler):
    """Keeps log records."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def main(bootstrap: str) -> None:
    kept = Kept()
    logging.getLogger("kohort").addHandler(kept)
    topic, typo = topic_with(bootstrap), unique("ordres")
    with Producer(bootstrap_servers=bootstrap, max_block_ms=3_000) as producer:
        try:
            producer.send(typo, b"x").result(60)
        except KafkaError as error:
            reason = "UNKNOWN_TOPIC_OR_PARTITION" in str(error)
            print(f"typo: names the topic: {typo in str(error)}, the reason: {reason}")
        print("the right topic: offset", producer.send(topic, b"x").result(60).offset)
        producer.send(topic_with(bootstrap), b"x").result(60)
    about_typo = [line for line in kept.lines if typo in line]
    print("logged once, and no recovery:", len(about_typo) == 1)


if __name__ == "__main__":
    start(main)
