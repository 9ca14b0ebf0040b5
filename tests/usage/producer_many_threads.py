"""A web server's threads share one producer: 8 threads, and each thread's records stay in order.

Prints:
    8000 arrived, different 8000
    each thread's in order: True
"""

from __future__ import annotations

import threading

from kohort import Producer
from tests.usage.around import start, topic_with, values_in


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap)
    with Producer(bootstrap_servers=bootstrap) as producer:

        def handle_requests(thread: int) -> None:
            for number in range(1_000):
                producer.send(topic, f"{thread}.{number}".encode())

        threads = [threading.Thread(target=handle_requests, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    values = [value.split(".") for value in values_in(bootstrap, topic)]
    print(f"{len(values)} arrived, different {len({(a, b) for a, b in values})}")
    of = [[int(b) for a, b in values if a == str(thread)] for thread in range(8)]
    print("each thread's in order:", all(each == [*range(1_000)] for each in of))


if __name__ == "__main__":
    start(main)
