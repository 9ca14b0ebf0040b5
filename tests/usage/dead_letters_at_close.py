"""Dead letters that delivery callbacks send while the producer is being closed.

The records are too large for their topic, which is known only once they are sent, at the end of the
`with` block. Each dead letter is still written.

Prints:
    accepted 20, refused by the broker 20
    dead letters: 20
"""

from __future__ import annotations

from kohort import Producer
from tests.usage.around import start, topic_with, unique, values_in


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, configs={"max.message.bytes": "500"})
    dead_letters = unique("dead-letters")
    refused: list[BaseException] = []
    with Producer(bootstrap_servers=bootstrap, linger_ms=60_000) as producer:

        def give_up(number: int, error: BaseException) -> None:
            refused.append(error)
            producer.send(dead_letters, b"%d" % number)

        futures = [producer.send(topic, b"x" * 1_000) for _ in range(20)]
        for number, future in enumerate(futures):
            future.add_errback(give_up, number)
    print(f"accepted {len(futures)}, refused by the broker {len(refused)}")
    print("dead letters:", len(values_in(bootstrap, dead_letters)))


if __name__ == "__main__":
    start(main)
