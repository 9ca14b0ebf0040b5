"""The configured address is closed: each client names the address, within its timeout.

Prints:
    admin: names the address: True, refused: True
    producer: names the address: True, refused: True
    consumer: names the address: True, refused: True
    a name that does not resolve: named: True
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from kohort import AdminClient, Consumer, KafkaError, Producer
from tests.usage.around import start


def main(bootstrap: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"127.0.0.1:{server.getsockname()[1]}"

    def told(name: str, call: Callable[[], object]) -> None:
        try:
            print(f"{name}: {call()}")
        except KafkaError as error:
            text = str(error).lower()
            print(f"{name}: names the address: {nobody in text}, refused: {'refused' in text}")

    with AdminClient(bootstrap_servers=nobody, default_api_timeout_ms=2_000) as admin:
        told("admin", admin.list_topics)
    with Producer(bootstrap_servers=nobody, max_block_ms=2_000) as producer:
        told("producer", lambda: producer.send("orders", b"x").result(60))
    with Consumer(bootstrap_servers=nobody, default_api_timeout_ms=2_000) as consumer:
        told("consumer", lambda: consumer.topics())

    with AdminClient(bootstrap_servers="kafka.invalid:9092", default_api_timeout_ms=2_000) as admin:
        try:
            admin.list_topics()
        except KafkaError as error:
            print("a name that does not resolve: named:", "kafka.invalid" in str(error))


if __name__ == "__main__":
    start(main)
