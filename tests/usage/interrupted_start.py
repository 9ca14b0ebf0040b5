"""Ctrl-C in a producer's very first call, while it starts: afterwards it works as usual.

The interrupt comes, in turn, at every place where Python allows one.

Prints:
    interrupted at more than 100 places
    sent again by the same thread and by another one: True
"""

from __future__ import annotations

import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

from kohort import Producer
from tests.usage.around import start, topic_with, values_in


class Hand:
    """Presses Ctrl-C once, after a number of steps of the client's code."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if "kohort" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGINT)
        return self.trace


def interrupted(producer: Producer, topic: str, hand: Hand) -> bool:
    """Send a first record; return whether Ctrl-C came before the end."""
    sys.settrace(hand.trace)
    try:
        producer.flush()
        producer.send(topic, b"interrupted")
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap)
    places = steps = 0
    with ThreadPoolExecutor(1) as pool:
        while places <= 100:
            steps += 1
            with Producer(bootstrap_servers=bootstrap) as producer:
                places += interrupted(producer, topic, Hand(steps))
                producer.send(topic, b"same").result(60)
                pool.submit(producer.send, topic, b"other").result(60).result(60)
    print("interrupted at more than 100 places")
    values = values_in(bootstrap, topic)
    print(
        "sent again by the same thread and by another one:",
        values.count("same") == values.count("other") == steps,
    )


if __name__ == "__main__":
    start(main)
