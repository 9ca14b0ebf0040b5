"""An at-least-once worker: three tries per record, then it goes to a dead-letter topic.

The dead letter has headers with its origin and is acknowledged before the offset is committed, and
the worker continues.

Prints:
    processed 18, gave up on 2
    dead letters: 7 13
    from: partition 0 offset 7, ValueError
    committed {0: 20}
"""

from __future__ import annotations

from kohort import Consumer, ConsumerRecord, Producer, TopicPartition
from tests.usage.around import Protocol, start, stored, topic_with, unique, values_in

TRIES = 3


def process(record: ConsumerRecord) -> None:
    if record.value in (b"7", b"13"):
        raise ValueError(f"cannot process {record.value!r}")


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 20), unique("billing")
    dead_letters = topic_with(bootstrap, name=f"{topic}.dead")
    done: list[int] = []
    given_up: list[ConsumerRecord] = []
    with (
        Producer(bootstrap_servers=bootstrap) as producer,
        Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):
        for record in consumer:
            for tried in range(1, TRIES + 1):
                try:
                    process(record)
                    done.append(record.offset)
                    break
                except ValueError as error:
                    if tried == TRIES:
                        headers = [
                            (
                                "from",
                                f"partition {record.partition} offset {record.offset}".encode(),
                            ),
                            ("error", type(error).__name__.encode()),
                        ]
                        producer.send(dead_letters, record.value, headers=headers).result(30)
                        given_up.append(record)
            consumer.commit()
            if record.offset == 19:
                break
    print(f"processed {len(done)}, gave up on {len(given_up)}")
    print("dead letters:", *values_in(bootstrap, dead_letters))
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as look:
        look.assign([TopicPartition(dead_letters, 0)])
        dead = next(iter(look))
    print("from:", ", ".join(bytes(value or b"").decode() for _, value in dead.headers))
    print("committed", stored(bootstrap, group))


if __name__ == "__main__":
    start(main)
