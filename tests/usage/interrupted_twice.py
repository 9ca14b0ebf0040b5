"""Ctrl-C while a poll decodes its records, and again while the poll is rolled back.

The program continues polling. Each record is read once, and no offset is stored before its record
is read.

Prints:
    interrupted
    read: 300 of 300
    stored: {0: 300}
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

from kohort import Consumer
from tests.usage.around import Protocol, start, stored, topic_with, unique

# Where the second Ctrl-C comes.
RESTORES = ("restore_undelivered", "_restore_undelivered")


class Impatient:
    """Presses Ctrl-C in the middle of the second poll, and again while that is rolled back."""

    def __init__(self) -> None:
        self.presses = 0

    def decode(self, value: bytes) -> bytes:
        if value == b"150" and not self.presses:
            self.presses = 1
            sys.setprofile(self.profile)
            signal.raise_signal(signal.SIGINT)
        return value

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.presses == 1 and event == "call" and frame.f_code.co_name in RESTORES:
            self.presses = 2
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group, hand = topic_with(bootstrap, 300), unique("impatient"), Impatient()
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        max_poll_records=100,
        value_deserializer=hand.decode,
    ) as consumer:
        read: list[bytes] = []
        while len(read) < 300:
            try:
                for records in consumer.poll(timeout_ms=1_000).values():
                    read += [record.value for record in records]
            except KeyboardInterrupt:
                print("interrupted")
    print("read:", len(set(read)), "of", len(read))
    print("stored:", stored(bootstrap, group))


if __name__ == "__main__":
    start(main)
