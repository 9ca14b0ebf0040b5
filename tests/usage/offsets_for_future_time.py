"""Set a group to "from tomorrow on" in the way a shell script would: offsets of a time, then alter.

There is no record of tomorrow, so `list_offsets` says -1. Storing -1 would make the group read
everything again; it is refused.

Prints:
    offset of tomorrow: -1
    refused: ValueError
    stored {}
"""

from __future__ import annotations

import time

from kohort import AdminClient, TopicPartition
from tests.usage.around import start, stored, topic_with, unique


def main(bootstrap: str) -> None:
    topic, group = topic_with(bootstrap, 10), unique("billing")
    partition = TopicPartition(topic, 0)
    tomorrow = int(time.time() * 1000) + 24 * 3_600_000
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        offsets = admin.list_offsets({partition: tomorrow})
        print("offset of tomorrow:", offsets[partition])
        try:
            admin.alter_group_offsets(offsets, group)
        except ValueError as error:
            print("refused:", type(error).__name__)
    print("stored", stored(bootstrap, group))


if __name__ == "__main__":
    start(main)
