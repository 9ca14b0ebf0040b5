"""Set a group to "from tomorrow on" like a shell script: look up the offsets of a time, then alter.

There are no records from tomorrow, so there is no offset. In Kafka's protocol that is -1, which a
group that stored it would interpret as "from the beginning": both are refused.

Prints:
    offset of tomorrow: None
    refused None: True, refused -1: True
    stored {}
"""

from __future__ import annotations

import time
from typing import Any

from kohort import AdminClient, TopicPartition
from tests.usage.around import start, stored, topic_with, unique


def main(bootstrap: str) -> None:
    topic, group = topic_with(bootstrap, 10), unique("billing")
    partition = TopicPartition(topic, 0)
    tomorrow = int(time.time() * 1000) + 24 * 3_600_000
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        offsets = admin.list_offsets({partition: tomorrow})
        print("offset of tomorrow:", offsets[partition])
        none: Any = offsets[partition]
        print(f"refused None: {is_refused(admin, group, {partition: none})},", end=" ")
        print(f"refused -1: {is_refused(admin, group, {partition: -1})}")
    print("stored", stored(bootstrap, group))


def is_refused(admin: AdminClient, group: str, offsets: dict[TopicPartition, int]) -> bool:
    try:
        admin.alter_group_offsets(offsets, group)
    except (TypeError, ValueError):
        return True
    return False


if __name__ == "__main__":
    start(main)
