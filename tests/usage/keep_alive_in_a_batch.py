"""A service that takes long over each record of a batch and stays a member with `poll_membership`.

An error ends it in the middle of the batch. Unprocessed records are read again.

Prints:
    polled 100
    the third record cannot be processed
    stored nothing of the batch: True
    read again from 0
"""

from __future__ import annotations

from kohort import Consumer
from tests.usage.around import Protocol, start, stored, topic_with, unique


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 100), unique("slow")
    settings = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
    }
    try:
        with Consumer(topic, **settings, auto_commit_interval_ms=1) as consumer:  # type: ignore[arg-type]  # one dict for two
            batch = {}
            while not batch:
                batch = consumer.poll(timeout_ms=1_000)
            records = [record for some in batch.values() for record in some]
            print("polled", len(records))
            for number, _ in enumerate(records):
                consumer.poll_membership(timeout_ms=50)
                if number == 2:
                    raise RuntimeError("the third record cannot be processed")
    except RuntimeError as error:
        print(error)
    print("stored nothing of the batch:", not stored(bootstrap, group).get(0))
    with Consumer(topic, **settings) as consumer:  # type: ignore[arg-type]  # as above
        print("read again from", next(consumer).offset)


if __name__ == "__main__":
    start(main)
