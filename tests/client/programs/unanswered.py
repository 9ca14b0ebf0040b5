"""A producer with acks=0 that sends more than a socket accepts at once, with different endings."""

from __future__ import annotations

import sys

from kohort import Producer

COUNT = 30
LARGE = 900_000
ENDS = ("close", "flush", "exit")


def main(end: str, bootstrap: str, topic: str) -> None:
    """Send records, and end in the given way."""
    producer = Producer(bootstrap_servers=bootstrap, acks=0)
    futures = [producer.send(topic, b"%04d" % number + bytes(LARGE)) for number in range(COUNT)]
    if end == "close":
        producer.close()
    elif end == "flush":
        producer.flush()
    if end != "exit":
        assert all(each.exception(0) is None for each in futures)


if __name__ == "__main__":
    main(*sys.argv[1:])
