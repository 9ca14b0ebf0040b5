"""Replay everything since ten o'clock: look up offsets of a time, then `seek`; to the end if none.

Prints:
    partition 0 from offset 60
    partition 1 has none since then: None
    first replayed: 60
"""

from __future__ import annotations

from kohort import Consumer, Producer, TopicPartition
from tests.usage.around import start, topic_with

TEN_O_CLOCK = 1_700_000_000_000


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, partitions=2, configs={"retention.ms": "-1"})
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for minute in range(100):
            when = TEN_O_CLOCK + (minute - 60) * 60_000
            producer.send(topic, str(minute).encode(), partition=0, timestamp_ms=when)
        producer.send(topic, b"early", partition=1, timestamp_ms=TEN_O_CLOCK - 1)
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([zero, one])
        found = consumer.offsets_for_times({zero: TEN_O_CLOCK, one: TEN_O_CLOCK})
        start = found[zero]
        assert start is not None
        print("partition 0 from offset", start.offset)
        print("partition 1 has none since then:", found[one])
        consumer.seek(zero, start.offset)
        consumer.seek_to_end(one)
        print("first replayed:", next(iter(consumer)).value.decode())


if __name__ == "__main__":
    start(main)
