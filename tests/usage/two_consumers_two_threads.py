"""Two consumers of one group in two threads of one process share a topic's partitions.

Prints:
    400 records, each once: True
    both had some: True
    committed {0: 100, 1: 100, 2: 100, 3: 100}
"""

from __future__ import annotations

import threading

from kohort import Consumer
from tests.usage.around import Protocol, start, stored, topic_with, unique, write


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, partitions=4), unique("pair")
    seen: dict[str, list[tuple[int, int]]] = {"one": [], "two": []}
    ready = {name: threading.Event() for name in seen}
    done = threading.Event()

    def consume(name: str) -> None:
        with Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
        ) as consumer:
            while not done.is_set():
                for records in consumer.poll(timeout_ms=100).values():
                    seen[name] += [(record.partition, record.offset) for record in records]
                if len(consumer.assignment()) == 2:
                    ready[name].set()

    threads = [threading.Thread(target=consume, args=(name,)) for name in seen]
    for thread in threads:
        thread.start()
    for event in ready.values():
        event.wait(60)
    write(bootstrap, topic, [str(number) for number in range(400)], partitions=4)
    while len(seen["one"]) + len(seen["two"]) < 400:
        done.wait(0.05)
    done.set()
    for thread in threads:
        thread.join()
    everything = seen["one"] + seen["two"]
    print(len(everything), "records, each once:", len({*everything}) == len(everything))
    print("both had some:", all(seen.values()))
    print("committed", dict(sorted(stored(bootstrap, group).items())))


if __name__ == "__main__":
    start(main)
