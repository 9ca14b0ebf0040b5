"""How far behind is a group? From outside: end minus committed offsets. From inside: current_lag.

Prints:
    lag from outside: 150
    inside, before the first poll: None
    inside, after 40 records: 160
    highwater: 200
"""

from __future__ import annotations

from kohort import AdminClient, Consumer, TopicPartition
from tests.usage.around import start, topic_with, unique


def main(bootstrap: str) -> None:
    topic, group = topic_with(bootstrap, 200), unique("behind")
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, group_id=group) as consumer:
        consumer.assign([partition])
        consumer.commit({partition: 50})

    with AdminClient(bootstrap_servers=bootstrap, group_id=group) as admin:
        committed = admin.committed([partition])
        ends = admin.list_offsets({partition: -1})
        print("lag from outside:", (ends[partition] or 0) - committed[partition])

    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        print("inside, before the first poll:", consumer.current_lag(partition))
        read = 0
        while read < 40:
            polled = consumer.poll(timeout_ms=1_000, max_records=40 - read)
            read += sum(len(records) for records in polled.values())
        print(f"inside, after {read} records:", consumer.current_lag(partition))
        print("highwater:", consumer.highwater(partition))


if __name__ == "__main__":
    start(main)
