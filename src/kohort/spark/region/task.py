"""The executor side of a region's sink: runs the function, writes and describes files."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

from kohort.delta.parquet import ArrowTask
from kohort.delta.reports import Span, merge_spans, spans_of
from kohort.region.errors import RegionOrderError
from kohort.region.states import KeyedState, check_size
from kohort.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.region.sinks.sink import TaskFile, TaskWriter

Function: TypeAlias = (
    "Callable[[TopicPartition, Iterator[pa.RecordBatch], KeyedState], Iterable[pa.RecordBatch]]"
)
KEYS = ("topic", "partition", "offset")


class RegionReport(Struct, frozen=True):
    """The results of one task.

    Attributes:
        files: Its durable files.
        spans: The spans of its input, one per Kafka partition.
        states: States after the batch, if there is a function.
    """

    files: list[TaskFile] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    states: Mapping[TopicPartition, bytes] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the report as text."""
        spans = [(each.topic, each.partition, each.first, each.end) for each in self.spans]
        states = [(*place, b64encode(state).decode()) for place, state in self.states.items()]
        return json.dumps({"files": self.files, "spans": spans, "states": states})

    @staticmethod
    def from_json(text: str) -> RegionReport:
        """Parse a text written by `to_json`."""
        read = json.loads(text)
        states = {TopicPartition(t, p): b64decode(state) for t, p, state in read["states"]}
        return RegionReport(read["files"], [Span(*each) for each in read["spans"]], states)


def region_task(
    writer: Callable[[], TaskWriter],
    function: Function | None,
    states: Mapping[TopicPartition, bytes],
) -> ArrowTask:
    """Return the function for `DataFrame.mapInArrow`; it yields one `RegionReport` per task.

    Args:
        writer: Creates the writer of the rows.
        function: Computes rows from a partition's records; None: they are written unchanged.
        states: States of the partitions before the batch.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        out = writer()
        try:
            if function is None:
                made = RegionReport(spans=_copy(batches, out))
            else:
                made = _apply(batches, out, function, states)
            report = RegionReport(out.close(), made.spans, made.states)
        except BaseException:
            out.discard()
            raise
        if report.spans:
            yield pa.record_batch({"report": pa.array([report.to_json()])})

    return run


def _copy(batches: Iterable[pa.RecordBatch], out: TaskWriter) -> list[Span]:
    import pyarrow as pa

    spans: list[Span] = []
    for batch in batches:
        if batch.num_rows:
            _check_keys(batch)
            spans = merge_spans([*spans, *spans_of(pa.Table.from_batches([batch]))])
            out.write(batch)
    return spans


def _apply(
    batches: Iterable[pa.RecordBatch],
    out: TaskWriter,
    function: Function,
    states: Mapping[TopicPartition, bytes],
) -> RegionReport:
    """Call the function for one partition after the other, each with its records in order."""
    spans: dict[TopicPartition, Span] = {}
    after: dict[TopicPartition, bytes] = {}
    for place, pieces in groupby(_pieces(batches, spans), key=lambda piece: piece[0]):
        if place in after:
            raise RegionOrderError(
                f"records of {place.topic}-{place.partition} come again after those of another "
                f"partition: {_REMEDY}"
            )
        state = KeyedState.from_bytes(states.get(place, b""))
        for rows in function(place, (piece for _, piece in pieces), state):
            out.write(rows)
        for _ in pieces:  # batches that the function did not read are checked all the same
            pass
        after[place] = state.to_bytes()
        check_size(f"{place.topic}-{place.partition}", after[place])
    return RegionReport(spans=list(spans.values()), states=after)


_REMEDY = (
    "a function with state needs each partition whole and in order. Leave the order of the source "
    "alone, or end the stream's plan in the batch with "
    "repartition('topic', 'partition').sortWithinPartitions('topic', 'partition', 'offset')"
)


def _pieces(
    batches: Iterable[pa.RecordBatch], spans: dict[TopicPartition, Span]
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Split batches where another partition begins; record the span of each piece."""
    import numpy as np

    for batch in batches:
        if not batch.num_rows:
            continue
        _check_keys(batch)
        topics = batch["topic"].dictionary_encode()
        numbers, offsets = batch["partition"].to_numpy(), batch["offset"].to_numpy()
        codes = topics.indices.to_numpy()
        cuts = np.flatnonzero((np.diff(numbers) != 0) | (np.diff(codes) != 0)) + 1
        bounds = [0, *cuts.tolist(), batch.num_rows]
        for start, end in pairwise(bounds):
            topic = topics.dictionary[int(codes[start])].as_py()
            place = TopicPartition(topic, int(numbers[start]))
            _note(place, offsets[start:end], spans)
            yield place, batch.slice(start, end - start)


def _note(place: TopicPartition, offsets: Any, spans: dict[TopicPartition, Span]) -> None:  # noqa: ANN401  # of numpy
    known, first, last = spans.get(place), int(offsets[0]), int(offsets[-1])
    if (offsets[1:] < offsets[:-1]).any() or (known is not None and first < known.end - 1):
        raise RegionOrderError(
            f"records of {place.topic}-{place.partition} are out of order: {_REMEDY}"
        )
    spans[place] = Span(*place, first if known is None else known.first, last + 1)


def _check_keys(batch: pa.RecordBatch) -> None:
    for name in KEYS:
        if batch[name].null_count:
            raise RegionOrderError(f"a region needs {name} of every row, and one is null")
