"""Web workers that still send while the application shuts its producer down.

A record is either refused by `send` or written: none is accepted and then lost.

Prints:
    each accepted record is written, and nothing else
    the workers were told that the producer is closed
"""

from __future__ import annotations

import threading

from kohort import LocalProtocolError, Producer
from tests.usage.around import start, topic_with, until, values_in


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap)
    producer = Producer(bootstrap_servers=bootstrap)
    accepted: list[str] = []
    refusals: list[str] = []

    def work(name: int) -> None:
        try:
            for number in range(20_000):
                value = f"{name}-{number}"
                producer.send(topic, value.encode())
                accepted.append(value)
        except LocalProtocolError as error:
            refusals.append(str(error))

    workers = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for worker in workers:
        worker.start()
    until(lambda: len(accepted) > 1_000, "records are sent")
    producer.close()
    for worker in workers:
        worker.join()
    written = values_in(bootstrap, topic)
    same = sorted(written) == sorted(accepted)
    print("each accepted record is written, and nothing else" if same else "records differ")
    told = all("closed" in text for text in refusals)
    print("the workers were told that the producer is closed" if told else refusals)


if __name__ == "__main__":
    start(main)
