"""A network flips one bit of a fetched record, once, and sends one answer twice, once.

The checksum detects the first, and a poll raises. The order of answers reveals the second, which is
logged; a poll raises only if it waited for another answer. No record is missing or read twice.

Prints:
    raised: ... has a wrong CRC
    67 read after an answer that came twice
    100 read, each once: True
"""

from __future__ import annotations

import contextlib

from kohort import Consumer, RemoteProtocolError, TopicPartition
from tests.client.garbling_proxy import FETCH, GarblingProxy, one_bit
from tests.usage.around import start, topic_with, write


def twice(answer: bytes) -> bytes:
    return answer + answer


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, 1)
    read: list[int] = []
    with GarblingProxy(bootstrap) as network:
        consumer = Consumer(
            bootstrap_servers=network.bootstrap_servers, auto_offset_reset="earliest"
        )
        consumer.assign([TopicPartition(topic, 0)])

        def read_until(count: int) -> None:
            while len(read) < count:
                for records in consumer.poll(timeout_ms=1_000).values():
                    read.extend(int(record.value) for record in records)

        def raised() -> str:
            """Make the network flip a bit of one answer; return the resulting error."""
            network.garble(one_bit, FETCH, times=1)
            write(bootstrap, topic, [str(number) for number in range(1, 34)])
            try:
                read_until(100)
            except RemoteProtocolError as error:
                return str(error)
            return "nothing"

        with consumer:
            read_until(1)
            print("raised:", raised())
            read_until(34)
            network.garble(twice, FETCH, times=1)
            write(bootstrap, topic, [str(number) for number in range(34, 67)])
            while len(read) < 67:
                with contextlib.suppress(RemoteProtocolError):
                    read_until(67)
            print(len(read), "read after an answer that came twice")
            network.stop()
            write(bootstrap, topic, [str(number) for number in range(67, 100)])
            read_until(100)
    print(f"{len(read)} read, each once:", read == list(range(100)))


if __name__ == "__main__":
    start(main)
