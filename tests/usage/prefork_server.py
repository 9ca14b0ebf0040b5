"""gunicorn with `preload_app`: the application created its clients before the workers were forked.

A worker that uses one of them gets an error at once that says what to do, instead of waiting
forever; a client that it creates itself works. The parent's clients are unaffected.

Prints:
    producer.send: LocalProtocolError, says fork: True
    consumer.poll: LocalProtocolError, says fork: True
    admin.list_topics: LocalProtocolError, says fork: True
    its own producer: offset 1
    worker's exit code 0
    parent: offset 2, polled 1
"""

from __future__ import annotations

import os
import sys

from kohort import AdminClient, Consumer, KohortError, Producer
from tests.usage.around import start, topic_with, unique


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap)
    producer = Producer(bootstrap_servers=bootstrap)
    admin = AdminClient(bootstrap_servers=bootstrap)
    consumer = Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=unique("preload"),
        auto_offset_reset="earliest",
        max_poll_records=1,
    )
    producer.send(topic, b"from the parent").result(60)
    admin.list_topics()
    while not consumer.poll(timeout_ms=1_000):
        pass

    worker = os.fork()
    if worker == 0:
        calls = {
            "producer.send": lambda: producer.send(topic, b"from the worker").result(60),
            "consumer.poll": lambda: consumer.poll(timeout_ms=1_000),
            "admin.list_topics": admin.list_topics,
        }
        for name, call in calls.items():
            try:
                print(f"{name}: returned {call()!r}")
            except KohortError as error:
                print(f"{name}: {type(error).__name__}, says fork:", "fork" in str(error))
        with Producer(bootstrap_servers=bootstrap) as own:
            print("its own producer: offset", own.send(topic, b"mine").result(60).offset)
        sys.exit(0)

    _, status = os.waitpid(worker, 0)
    print("worker's exit code", os.waitstatus_to_exitcode(status))
    where = producer.send(topic, b"from the parent").result(60)
    polled = consumer.poll(timeout_ms=10_000)
    print(f"parent: offset {where.offset}, polled", sum(len(some) for some in polled.values()))
    for client in (producer, admin, consumer):
        client.close()


if __name__ == "__main__":
    start(main)
