"""The same with `for`: the loop raises at the bad record, and a new loop continues after it.

Prints:
    read 0 1 2
    bad record at offset 3
    read 4 5
    committed {0: 6}
"""

from __future__ import annotations

import json

from kohort import Consumer
from kohort.errors import RecordDeserializationError
from tests.usage.around import Protocol, start, stored, topic_with, unique, write


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap), unique("json")
    write(bootstrap, topic, ["0", "1", "2", "oops", "4", "5"])
    read: list[int] = []
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        value_deserializer=json.loads,
    ) as consumer:
        while not read or read[-1] != 5:
            try:
                for record in consumer:
                    read.append(record.value)
                    if record.value == 5:
                        break
            except RecordDeserializationError as error:
                print("read", *read)
                print("bad record at offset", error.offset)
                consumer.seek(error.partition, error.offset + 1)
                read.clear()
        print("read", *read)
        consumer.commit()
    print("committed", stored(bootstrap, group))


if __name__ == "__main__":
    start(main)
