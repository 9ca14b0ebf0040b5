"""JSON records, and one that is not JSON: it is reported, skipped, and kept; all others are read.

The error has the position and the bytes of the bad record; `seek` past it continues.

Prints:
    bad record: partition 0 offset 5 value b'{"number": oops'
    caused by JSONDecodeError
    read 0 1 2 3 4 6 7 8 9 and 5 of the other partition
"""

from __future__ import annotations

import json

from kohort import Consumer, TopicPartition
from kohort.errors import RecordDeserializationError
from tests.usage.around import Protocol, start, topic_with, unique, write


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic = topic_with(bootstrap, partitions=2)
    good = [json.dumps({"number": number}) for number in range(10)]
    write(bootstrap, topic, [*good[:5], '{"number": oops', *good[6:]])
    for number in range(5):
        write(bootstrap, topic, ["null", json.dumps({"other": number})], partitions=2)
    read: dict[int, list[dict[str, int] | None]] = {0: [], 1: []}
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=unique("json"),
        group_protocol=protocol,
        auto_offset_reset="earliest",
        value_deserializer=json.loads,
    ) as consumer:
        while len(read[0]) < 14 or len(read[1]) < 5:
            try:
                for partition, records in consumer.poll(timeout_ms=1_000).items():
                    read[partition.partition] += [record.value for record in records]
            except RecordDeserializationError as error:
                number = error.partition.partition
                print(f"bad record: partition {number} offset {error.offset} value {error.value!r}")
                print("caused by", type(error.__cause__).__name__)
                consumer.seek(TopicPartition(topic, number), error.offset + 1)
    numbers = [each["number"] for each in read[0] if each]
    print("read", *numbers, "and", len(read[1]), "of the other partition")


if __name__ == "__main__":
    start(main)
