"""Allows one call per batch: a sink that identifies records by offset would drop a second call's.

The first call moves the position of its partitions past the whole batch, regardless of which rows
it received. So `sink(frame.filter(a), i)` and `sink(frame.filter(b), i)` would lose the rows of
`b`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kohort.errors import KohortError
from kohort.spark.checkpoint.batch_ids import running_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The local property in which Spark stores a batch's number for code on the query's thread.
BATCH_ID = "streaming.sql.batchId"

_lock = threading.Lock()
# The last accepted batch, by the run of the query and the sink.
_taken: dict[tuple[str, str], str] = {}


class RepeatedBatchError(KohortError):
    """A sink was called twice for one batch of one run; the second call writes nothing."""


@contextmanager
def refuse_repeated(sink: str, frame: DataFrame, batch_id: int) -> Iterator[None]:
    """Accept a batch, unless the same run of the query has already passed it to the sink.

    A batch that Spark replays after a restart comes from another run. A batch whose first call
    raised an error may be passed again.

    Args:
        sink: The sink, for the message.
        frame: The argument of `foreachBatch`, or a frame derived from it.
        batch_id: Spark's number of the batch, used if the driver's session does not expose it.

    Raises:
        RepeatedBatchError: The same run has already passed it.
    """
    batch = _batch_of(frame, batch_id)
    if batch is None:
        yield
        return
    run, number = batch
    with _lock:
        if _taken.get((run, sink)) == number:
            raise RepeatedBatchError(
                f"{sink} was called twice for batch {number} of the query. Nothing of the second "
                "call is written: by their offsets its rows count as written with the first. Call "
                "it once for each batch, with all rows; to write some of them elsewhere, filter "
                "the frame for another sink"
            )
        _taken[run, sink] = number
    try:
        yield
    except BaseException:
        _taken.pop((run, sink), None)
        raise


def _batch_of(frame: DataFrame, batch_id: int) -> tuple[str, str] | None:
    """Return a frame's run of the query, and the number of its batch.

    None if the frame belongs to no query, or this version of Spark does not expose it.
    """
    from py4j.protocol import Py4JError

    if getattr(frame.sparkSession, "_jsparkSession", None) is None:
        return "", str(batch_id)  # Spark Connect has a process for each run of a query
    try:
        query = running_query(frame)
        if query is None:
            return None
        number = frame.sparkSession.sparkContext.getLocalProperty(BATCH_ID)
        return str(query.runId()), number or str(batch_id)
    except (Py4JError, AttributeError, TypeError):  # `topic_ids` warns of it
        return None
