"""A table for a topic that accepts batches of 2,000 bytes; the producer's have up to 1 MiB.

They are split until they fit, several times if necessary. The future is done when the outcome of
every row is known: one row is too large even alone, and the error names it.

Prints:
    999 of 1000 rows were delivered
    not delivered: [37] because of MESSAGE_TOO_LARGE
    the rest is there, in order: True
"""

from __future__ import annotations

import pyarrow as pa

from kohort import Producer
from kohort.client import ArrowDeliveryError
from tests.usage.around import start, topic_with, values_in


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, configs={"max.message.bytes": "2000"})
    values = [f"{number:040}" for number in range(1_000)]
    values[37] = "x" * 3_000
    with Producer(bootstrap_servers=bootstrap) as producer:
        future = producer.send_arrow(topic, pa.table({"value": values}))
        try:
            future.get(60)
        except ArrowDeliveryError as error:
            print(f"{error.delivered.rows} of {len(values)} rows were delivered")
            why = str(error.failures[0].error).partition(":")[0]
            print("not delivered:", error.rows.to_pylist(), "because of", why)
    del values[37]
    print("the rest is there, in order:", values_in(bootstrap, topic) == values)


if __name__ == "__main__":
    start(main)
