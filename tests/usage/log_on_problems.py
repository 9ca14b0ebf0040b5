"""The log of a service without its broker: one line that says everything, not 100.

`poll` may raise meanwhile; such an error is `retriable`, and the service continues.

Prints:
    warnings within 3 seconds: between 1 and 5: True
    names the address: True
    nothing at ERROR: True
"""

from __future__ import annotations

import logging
import socket

from kohort import Consumer, KafkaError
from tests.usage.around import start, unique


class Kept(logging.Handler):
    """Keeps log records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def main(bootstrap: str) -> None:
    kept = Kept()
    logging.getLogger("kohort").addHandler(kept)
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"127.0.0.1:{server.getsockname()[1]}"
    with Consumer("orders", bootstrap_servers=nobody, group_id=unique("service")) as consumer:
        for _ in range(3):
            try:
                consumer.poll(timeout_ms=1_000)
            except KafkaError as error:
                if not error.retriable:
                    raise
    warnings = [each.getMessage() for each in kept.records if each.levelno == logging.WARNING]
    print("warnings within 3 seconds: between 1 and 5:", 1 <= len(warnings) <= 5)
    print("names the address:", any(nobody in each for each in warnings))
    print("nothing at ERROR:", all(e.levelno < logging.ERROR for e in kept.records))


if __name__ == "__main__":
    start(main)
