"""A load balancer answers for a restarting broker: HTTP 503 for a while, then the broker again.

A poll or the log reports the answer. No action is needed: the consumer keeps reading, and the
producer's records arrive.

Prints:
    before: 100 read
    stop the broker and press Enter
    told: the port speaks HTTP
    start the broker and press Enter
    after: 200 read, each once: True
    delivered: 200
"""

from __future__ import annotations

import logging
import socketserver
import threading

from kohort import Consumer, Producer, RemoteProtocolError
from tests.usage.around import Protocol, start, topic_with, unique


class Unavailable(socketserver.BaseRequestHandler):
    """Answers like a load balancer without a broker."""

    def handle(self) -> None:
        self.request.recv(1_000)
        self.request.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")


class Balancer(socketserver.ThreadingTCPServer):
    """Listens at the broker's address while it is down."""

    allow_reuse_address = True
    daemon_threads = True


class Keeper(logging.Handler):
    """Keeps log records."""

    def __init__(self, told: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        self._told.append(record.getMessage())


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic = topic_with(bootstrap)
    host, _, port = bootstrap.rpartition(":")
    read: list[int] = []
    told: list[str] = []
    logging.getLogger("kohort").addHandler(Keeper(told))
    with (
        Producer(bootstrap_servers=bootstrap) as producer,
        Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=unique("balanced"),
            group_protocol=protocol,
            auto_offset_reset="earliest",
        ) as consumer,
    ):

        def poll() -> None:
            for records in consumer.poll(timeout_ms=500).values():
                read.extend(int(record.value) for record in records)

        sent = [producer.send(topic, str(number).encode()) for number in range(100)]
        while len(read) < 100:
            poll()
        print(f"before: {len(read)} read")
        input("stop the broker and press Enter\n")
        with Balancer((host, int(port)), Unavailable) as balancer:
            threading.Thread(target=balancer.serve_forever, daemon=True).start()
            sent += [producer.send(topic, str(number).encode()) for number in range(100, 200)]
            while not any("the port speaks HTTP" in each for each in told):
                try:
                    poll()
                except RemoteProtocolError as error:  # the request went to a known leader
                    told.append(str(error))
            print("told: the port speaks HTTP")
            balancer.shutdown()
        input("start the broker and press Enter\n")
        while len(read) < 200:
            try:
                poll()
            except RemoteProtocolError:
                continue  # read before the broker was back
        print(f"after: {len(read)} read, each once:", sorted(read) == list(range(200)))
        print("delivered:", sum(future.result(60).offset >= 0 for future in sent))


if __name__ == "__main__":
    start(main)
