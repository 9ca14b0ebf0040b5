"""Writes the output of a query that is an operator of a consistent region.

A query with the source's option `consistentRegion` writes with `foreachBatch(region_sink(sink))`.
Tasks write files that no reader sees yet. The source's process, which is the operator, takes them
over together with the function's states, and the controller publishes them once the whole region
has a checkpoint that contains them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kohort.region.errors import RegionOrderError, RegionQueryError
from kohort.spark.checkpoint.batch_ids import offsets_of, running_query
from kohort.spark.checkpoint.manifest import Manifest, ManifestError
from kohort.spark.completion.control import application_of_this_process
from kohort.spark.environment import use_this_interpreter
from kohort.spark.region.ipc import HandOver, OpenBatch, watch_end
from kohort.spark.region.task import KEYS, Function, RegionReport, region_task
from kohort.spark.writer.delta import run_task
from kohort.spark.writer.repeated_batches import refuse_repeated
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kohort.region.sinks.sink import SharedSink

__all__ = ["RegionBatches", "region_sink"]

log = logging.getLogger("kohort.spark")

# Names of Spark's physical operators that keep state between batches.
_STATEFUL = re.compile(r"StateStore|WithState|Streaming(Deduplicate|SymmetricHashJoin|GlobalLimit)")


def region_sink(sink: SharedSink, function: Function | None = None) -> RegionBatches:
    """Return the `foreachBatch` writer of a query with the option `consistentRegion`.

    Args:
        sink: `DeltaSink` or `ParquetDirectory`, the same for all operators of the region.
        function: Computes rows from the records of one partition, in order: `function((topic,
            partition), batches, state)` takes an iterator of record batches and a dict that stays
            with the partition, and yields record batches. It must be repeatable. None: the frame's
            rows are written unchanged.

    Raises:
        RegionQueryError: Tasks cannot write to the sink.
    """
    if not hasattr(sink, "task_writer"):
        raise RegionQueryError(
            f"{type(sink).__name__} cannot be written to by the tasks of a query: use DeltaSink or "
            "ParquetDirectory"
        )
    use_this_interpreter()
    return RegionBatches(sink, function)


class RegionBatches:
    """Writes the batches of one query; see `region_sink`."""

    def __init__(self, sink: SharedSink, function: Function | None) -> None:
        self._sink = sink
        self._function = function

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write a batch, unless it is not open: the region already has batches that Spark repeats.

        Raises:
            RegionQueryError: The query cannot be an operator of a region.
            RegionOrderError: The function needs each partition whole and in order.
            RepeatedBatchError: This run of the query has already given the batch to the region.
        """
        batch = _batch_of(frame)
        with refuse_repeated(f"region_sink of region {batch.region}", frame, batch_id):
            self._take(frame, batch_id, batch)

    def _take(self, frame: DataFrame, batch_id: int, batch: Manifest) -> None:
        application = application_of_this_process()
        found = None if application is None else OpenBatch.find(application, batch)
        if found is None:
            log.info("batch %d of operator %s is no longer open", batch_id, batch.operator)
        elif not batch.batch:
            self._greet(frame, found)
        else:
            self._write(frame, batch, found)

    def _greet(self, frame: DataFrame, found: OpenBatch) -> None:
        """Make the sink known to the operator before it reads anything.

        The frame has no rows, but is run all the same: the first run in a session takes seconds,
        during which no checkpoint should have to wait.
        """
        from pyspark import cloudpickle

        if _keeps_state(frame):
            raise RegionQueryError(
                "the query keeps state of Spark's own, which a region cannot take back with its "
                "checkpoints: keep it in region_sink(sink, function), where it stays with its "
                "partition, or aggregate the region's output in a query of its own"
            )
        missing = [name for name in KEYS if name not in frame.columns]
        if missing:
            raise RegionQueryError(
                f"the stream lacks {', '.join(missing)} of the source, by which a region knows "
                "its records; keep them in select. A Delta table need not have them"
            )
        writer = self._sink.task_writer("", 0)
        run_task(frame, region_task(writer, self._function, {}))
        sink: bytes = cloudpickle.dumps(self._sink)  # type: ignore[no-untyped-call]  # of PySpark
        if found.hand_over(HandOver(sink=sink, keeps_state=self._function is not None)):
            watch_end(found.source, running_query(frame).stop, found.operator)

    def _write(self, frame: DataFrame, batch: Manifest, found: OpenBatch) -> None:
        states = found.states() if self._function is not None else {}
        writer = self._sink.task_writer(batch.operator, batch.epoch)
        task = region_task(writer, self._function, states)
        reports = [RegionReport.from_json(text) for text in run_task(frame, task)]
        files = [each for report in reports for each in report.files]
        try:
            _check_rows(batch, reports, is_whole=self._function is not None)
        except RegionOrderError:
            self._sink.remove(files)
            raise
        after = {place: state for report in reports for place, state in report.states.items()}
        if not found.hand_over(HandOver(files, after)):
            log.info(
                "batch %d of operator %s does not count: the region reset meanwhile, and reads "
                "it again",
                batch.batch,
                batch.operator,
            )
            self._sink.remove(files)


def _batch_of(frame: DataFrame) -> Manifest:
    """Return the batch from which the frame was read.

    Raises:
        RegionQueryError: It does not have exactly one source with `consistentRegion`.
    """
    if getattr(frame.sparkSession, "_jsparkSession", None) is None:
        raise RegionQueryError("region_sink needs a session in the driver's own process")
    found: list[Manifest] = []
    offsets = offsets_of(frame)
    for offset in offsets:
        try:
            found.append(Manifest.from_json(offset))
        except ManifestError:
            continue
    if len(offsets) != 1 or not found or not found[0].region:
        raise RegionQueryError(
            f"region_sink writes for a query with one source, which has the option "
            f"consistentRegion; this one has {len(offsets)} sources, and "
            f"{sum(bool(each.region) for each in found)} with the option. Give each its query"
        )
    return found[0]


def _keeps_state(frame: DataFrame) -> bool:
    return bool(_STATEFUL.search(running_query(frame).lastExecution().executedPlan().toString()))


def _check_rows(batch: Manifest, reports: Sequence[RegionReport], *, is_whole: bool) -> None:
    """Check that the rows belong to the batch; with a function, that no partition was split."""
    for place, first, end in _spans(reports):
        start, stop = batch.ranges.get(place, (0, 0))
        if not start <= first < end <= stop:
            raise RegionOrderError(
                f"rows have offsets {first} to {end - 1} of {place.topic}-{place.partition}, and "
                f"the batch reads {start} to {stop - 1}: leave topic, partition and offset as the "
                "source gives them"
            )
    places = [place for place, _, _ in _spans(reports)]
    split = sorted({place for place in places if places.count(place) > 1})
    if is_whole and split:
        raise RegionOrderError(
            f"records of {split[0].topic}-{split[0].partition} came in several tasks, and a "
            "function with state needs each partition whole and in order: "
            "repartition('topic', 'partition').sortWithinPartitions('topic', 'partition', 'offset')"
        )


def _spans(reports: Iterable[RegionReport]) -> list[tuple[TopicPartition, int, int]]:
    return [
        (TopicPartition(span.topic, span.partition), span.first, span.end)
        for report in reports
        for span in report.spans
    ]
