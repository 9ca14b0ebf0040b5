"""What tasks do for the sink of a region: order, states and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kohort.delta.reports import Span
from kohort.region import DeltaSink, ParquetDirectory, RegionOrderError, StateLimitError
from kohort.region.sinks.sink import SharedSink
from kohort.spark.region.task import RegionReport, region_task
from kohort.types import TopicPartition
from tests.delta.rows import SCHEMA, batch_of, span


def count(place: TopicPartition, batches: Iterator[pa.RecordBatch], state: dict[str, int]) -> Any:
    for batch in batches:
        state["count"] = state.get("count", 0) + batch.num_rows
    yield pa.record_batch({"partition": [place.partition], "count": [state["count"]]})


@pytest.fixture(params=["parquet", "delta"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> SharedSink:
    made: SharedSink = ParquetDirectory(tmp_path)
    if request.param == "delta":
        made = DeltaSink(tmp_path, SCHEMA)
    made.open("region", "id", 0)
    return made


def run(
    sink: SharedSink, batches: Sequence[pa.RecordBatch], function: Any = None, **states: bytes
) -> RegionReport:
    before = {TopicPartition("t", int(name[1:])): state for name, state in states.items()}
    task = region_task(sink.task_writer("north", 1), function, before)
    (report,) = [each["report"][0].as_py() for each in task(batches)]
    return RegionReport.from_json(report)


def test_rows_are_written_as_they_are(sink: SharedSink, tmp_path: Path) -> None:
    batches = [batch_of([*span(1, 0, 3), *span(0, 4, 6)]), batch_of(span(1, 3, 5))]
    report = run(sink, batches)
    assert report.spans == [Span("t", 0, 4, 6), Span("t", 1, 0, 5)]
    (file,) = report.files
    assert pq.ParquetFile(tmp_path / file["path"]).metadata.num_rows == 7
    sink.remove(report.files)
    assert not (tmp_path / file["path"]).exists()


def test_a_function_has_one_partition_after_the_other(tmp_path: Path) -> None:
    sink = ParquetDirectory(tmp_path)
    sink.open("region", "id", 0)
    batches = [batch_of(span(0, 0, 2)), batch_of([*span(0, 2, 3), *span(1, 7, 9)])]
    report = run(sink, batches, count, p1=b'{"count":40}')
    assert report.spans == [Span("t", 0, 0, 3), Span("t", 1, 7, 9)]
    assert report.states == {("t", 0): b'{"count":3}', ("t", 1): b'{"count":42}'}
    (file,) = report.files
    rows = pq.ParquetFile(tmp_path / file["path"]).read().to_pylist()
    assert rows == [{"partition": 0, "count": 3}, {"partition": 1, "count": 42}]


@pytest.mark.parametrize(
    ("batches", "problem"),
    [
        ([span(0, 0, 2), span(1, 0, 2), span(0, 2, 3)], "t-0 come again after"),
        ([span(0, 2, 4), span(0, 0, 2)], "t-0 are out of order"),
        ([[*span(0, 2, 4), *span(0, 0, 2)]], "t-0 are out of order"),
    ],
)
def test_broken_order_is_refused(tmp_path: Path, batches: Any, problem: str) -> None:
    sink = ParquetDirectory(tmp_path)
    sink.open("region", "id", 0)
    with pytest.raises(RegionOrderError, match=problem):
        run(sink, [batch_of(each) for each in batches], count)
    assert list((tmp_path / "data").iterdir()) == []
    run(sink, [batch_of(each) for each in batches])  # without a function it does not matter


def test_state_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    def hoard(_place: Any, _batches: Any, state: dict[str, str]) -> Iterator[pa.RecordBatch]:
        state["all"] = "x" * 600_000
        yield from ()

    sink = ParquetDirectory(tmp_path)
    sink.open("region", "id", 0)
    with pytest.raises(StateLimitError, match="t-0 has 600010 bytes"):
        run(sink, [batch_of(span(0, 0, 2))], hoard)


def test_a_row_without_its_place_is_refused(sink: SharedSink) -> None:
    rows = batch_of(span(0, 0, 2)).set_column(2, SCHEMA.field("offset"), pa.array([0, None]))
    for function in (None, count):
        with pytest.raises(RegionOrderError, match="needs offset of every row"):
            run(sink, [rows], function)
