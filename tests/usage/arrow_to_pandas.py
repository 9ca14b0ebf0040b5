"""A topic into a pandas data frame, by way of Arrow: no Python object per record.

Prints:
    rows 1000
    customer 3: 100 orders worth 49800
"""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.csv

from kohort import Consumer, TopicPartition
from tests.usage.around import start, topic_with, write


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, partitions=2)
    lines = [f"{number % 10},{number}" for number in range(1_000)]
    write(bootstrap, topic, lines, partitions=2)
    batches: list[pa.RecordBatch] = []
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, number) for number in (0, 1)])
        while sum(batch.num_rows for batch in batches) < 1_000:
            batches.append(consumer.poll_arrow(timeout_ms=1_000))
    values = pa.Table.from_batches(batches).column("value")
    text = pa.py_buffer(b"\n".join(value.as_py() for value in values))
    names = pyarrow.csv.ReadOptions(column_names=["customer", "amount"])
    frame: pd.DataFrame = pyarrow.csv.read_csv(text, read_options=names).to_pandas()
    print("rows", len(frame))
    of_three = frame[frame.customer == 3]
    print(f"customer 3: {len(of_three)} orders worth {of_three.amount.sum()}")


if __name__ == "__main__":
    start(main)
