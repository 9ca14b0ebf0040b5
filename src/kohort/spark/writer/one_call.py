"""One call for each batch: a sink that knows records by their offsets drops those of a second one.

A first call moves the position of its partitions behind the whole batch, whatever rows it was
given. So `sink(frame.filter(a), i)` and `sink(frame.filter(b), i)` would lose the rows of `b`.
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

# The local property by which Spark names a batch to whatever runs on the query's thread.
BATCH_ID = "streaming.sql.batchId"

_lock = threading.Lock()
# The last batch that was taken, by the run of the query and by what has taken it.
_taken: dict[tuple[str, str], str] = {}


class RepeatedBatchError(KohortError):
    """A sink was called twice for one batch of one run; nothing of the second call is written."""


@contextmanager
def only_call(sink: str, frame: DataFrame, batch_id: int) -> Iterator[None]:
    """Take a batch, unless the same run of the query has given it to the sink before.

    A batch that Spark repeats after a restart comes from another run. One whose first call has
    raised may come again.

    Args:
        sink: What keeps the positions, for the message.
        frame: What `foreachBatch` was given, or made of it.
        batch_id: Spark's number of the batch, where the driver's session does not tell it.

    Raises:
        RepeatedBatchError: It has.
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
    """Return the run of the query that has given out a frame, and the number of the batch.

    None: the frame is of no query, or this version of Spark does not tell.
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
