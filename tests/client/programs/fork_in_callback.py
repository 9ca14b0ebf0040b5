"""A delivery callback forks; prints the child's status and the number of delivered records."""

from __future__ import annotations

import os
import sys
import threading

from kohort import Producer
from kohort.client.producer.api import RecordMetadata


def main(bootstrap: str, how: str, register: str) -> None:
    """Send records while children leave the callback in one of several ways."""
    producer = Producer(bootstrap_servers=bootstrap, linger_ms=0)
    children: list[int] = []

    def fork(_: object) -> None:
        if children or threading.current_thread() is threading.main_thread():
            return
        child = os.fork()
        if child:
            children.append(child)
        elif how == "exit":
            sys.exit(7)
        elif how == "text":
            sys.exit("goodbye")
        elif how == "raise":
            raise ValueError("in the child")

    sent = [producer.send("t", b"v")]
    sent[0].result(60)
    while len(sent) <= 1000 or not children:
        future = producer.send("t", b"v")
        if len(sent) > 500 and not children:
            if register == "add_callback":
                future.add_callback(fork)
            else:
                future.add_done_callback(fork)
        sent.append(future)
    producer.close()
    offsets = [RecordMetadata(*each.result(0)).offset for each in sent]
    _, status = os.waitpid(children[0], 0)
    delivered = offsets == list(range(len(sent)))
    print(f"child {os.waitstatus_to_exitcode(status)}, delivered {delivered}")


if __name__ == "__main__":
    main(*sys.argv[1:])
