"""A table with a date before 1970: Kafka has no such timestamps, so no row of the table is sent.

The error names the row. Exactly -1 ms, which `poll_arrow` returns for a record without a timestamp,
may be sent.

Prints:
    refused: row 2 for ...: the timestamp is before 1970 or beyond 64 bits (-1 ms, for none, may be)
    written: ['d']
"""

from __future__ import annotations

import pyarrow as pa

from kohort import Producer
from tests.usage.around import start, topic_with, values_in


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap)
    times = pa.array([0, 1_700_000_000_000_000, -1_500], pa.timestamp("us", "UTC"))
    table = pa.table({"value": ["a", "b", "c"], "timestamp": times})
    without = pa.table({"value": ["d"], "timestamp": pa.array([-1], pa.timestamp("ms", "UTC"))})
    with Producer(bootstrap_servers=bootstrap) as producer:
        try:
            producer.send_arrow(topic, table)
        except ValueError as error:
            print("refused:", error)
        producer.send_arrow(topic, without).get(60)
    print("written:", values_in(bootstrap, topic))


if __name__ == "__main__":
    start(main)
