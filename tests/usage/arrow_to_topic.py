"""A data frame into a topic: one call, one future, keys and timestamps as columns.

Prints:
    sent 1000 rows
    kafka-python reads 1000, the last is key-999 999 at 1700000000999
"""

from __future__ import annotations

import pyarrow as pa
from kafka import KafkaConsumer
from kafka import TopicPartition as TheirPartition

from kohort import Producer
from tests.usage.around import start, topic_with


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, configs={"retention.ms": "-1"})
    numbers = range(1_000)
    batch = pa.record_batch(
        {
            "key": pa.array([f"key-{number}".encode() for number in numbers], pa.binary()),
            "value": pa.array([str(number).encode() for number in numbers], pa.binary()),
            "timestamp": pa.array(
                [1_700_000_000_000 + number for number in numbers], pa.timestamp("ms", "UTC")
            ),
        }
    )
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_arrow(topic, batch).result(60)
        print("sent", batch.num_rows, "rows")
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TheirPartition(topic, 0)])
    read = [next(consumer) for _ in numbers]
    consumer.close()
    last = read[-1]
    print(f"kafka-python reads {len(read)}, the last is", end=" ")
    print(last.key.decode(), last.value.decode(), "at", last.timestamp)


if __name__ == "__main__":
    start(main)
