"""A compacted topic as a table: the option `table` of a batch read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import confluent_kafka as foreign
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kohort.spark.source.partition_reader as module
from kohort.spark.options.source import OptionError
from kohort.spark.source.datasource import KohortDataSource
from kohort.spark.source.partition_reader import latest
from tests.spark.brokers import bootstrap
from tests.spark.playing import options

__all__ = ["bootstrap"]

Pair = tuple[bytes | None, bytes | None]
PAIRS = st.lists(
    st.tuples(
        st.none() | st.sampled_from([b"", b"a", b"b", b"c"]),
        st.none() | st.binary(max_size=2),
    ),
    max_size=30,
)


def batch(pairs: Sequence[Pair], first: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key for key, _ in pairs], pa.binary()),
            "value": pa.array([value for _, value in pairs], pa.binary()),
            "offset": pa.array(range(first, first + len(pairs)), pa.int64()),
        }
    )


@given(parts=st.lists(PAIRS, max_size=6), together=st.integers(1, 40))
def test_it_is_what_a_dict_would_hold(parts: list[list[Pair]], together: int) -> None:
    pairs = [pair for part in parts for pair in part]
    wanted = {key: (value, at) for at, (key, value) in enumerate(pairs) if key is not None}
    starts = [sum(map(len, parts[:number])) for number in range(len(parts))]
    batches = [batch(part, start) for part, start in zip(parts, starts, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_TOGETHER", together)
        found = list(latest(batches, ["key", "offset", "value"], "t-0"))
    rows = [tuple(row.values()) for each in found for row in each.to_pylist()]
    present = [(key, at, value) for key, (value, at) in wanted.items() if value is not None]
    assert rows == sorted(present, key=lambda row: row[1])


def fill(bootstrap: str, topic: str) -> None:
    producer = foreign.Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(10):
        for key in (b"a", b"b", b"gone"):
            producer.produce(topic, b"%d" % number, key=key, partition=number % 2)
    for partition in (0, 1):
        producer.produce(topic, None, key=b"gone", partition=partition)
        producer.produce(topic, b"no key", partition=partition)
    assert producer.flush(30) == 0


def read(bootstrap: str, topic: str, **more: str) -> list[dict[str, object]]:
    source = KohortDataSource(
        options(bootstrap, topic, subscribe="", startingOffsets="", table=topic, **more)
    )
    reader = source.reader(None)  # type: ignore[arg-type]  # no schema
    batches: list[Any] = [each for task in reader.partitions() for each in reader.read(task)]
    assert all(isinstance(each, pa.RecordBatch) for each in batches)
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_each_key_has_its_last_value(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(bootstrap, topic)
    rows = read(bootstrap, topic, columns="value,partition,key")
    assert [list(row) for row in rows[:1]] == [["value", "partition", "key"]]
    found = {(row["partition"], row["key"]): row["value"] for row in rows}
    assert found == {(0, b"a"): b"8", (0, b"b"): b"8", (1, b"a"): b"9", (1, b"b"): b"9"}
    assert len(rows) == len(found)
    said = [each.message for each in caplog.records if "without a key" in each.message]
    assert sorted(said) == [
        f"{topic}-{number}: 1 records without a key are left out of the table" for number in (0, 1)
    ]


def test_columns_that_are_not_wanted_are_read_all_the_same(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic)
    assert sorted(str(row) for row in read(bootstrap, topic, columns="value")) == [
        "{'value': b'8'}", "{'value': b'8'}", "{'value': b'9'}", "{'value': b'9'}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"startingOffsets": "earliest"}, "startingOffsets is not valid with table"),
        ({"minPartitions": "9"}, "minPartitions is not valid with table"),
        ({"subscribe": "t"}, "only one of subscribe, table can be given"),
        ({"table": " , "}, "table is required"),
    ],
)
def test_what_does_not_go_with_it_is_named(more: dict[str, str], said: str) -> None:
    given = options(
        "127.0.0.1:1", "t", **{"subscribe": "", "startingOffsets": "", "table": "t", **more}
    )
    with pytest.raises(OptionError, match=said):
        KohortDataSource(given).reader(None).partitions()  # type: ignore[arg-type]  # no schema
