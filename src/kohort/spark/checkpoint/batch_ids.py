"""The topics of a batch: the topic ids in the offset that Spark logged for it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kohort.errors import KohortError
from kohort.spark.checkpoint.manifest import OffsetJson

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("kohort.spark")

# The local property in which Spark stores the query's id for code on its thread.
QUERY_ID = "sql.streaming.queryId"


# A StreamExecution of the JVM, or None.
JavaQuery: TypeAlias = Any


class TopicIdError(KohortError):
    """Two sources of a batch read different topics with the same name."""


class _Offset(Protocol):
    def json(self) -> str: ...


class _Iterator(Protocol):
    def hasNext(self) -> bool: ...  # noqa: N802  # Scala's name
    def next(self) -> _Offset: ...


def topic_ids(frame: DataFrame) -> dict[str, str]:
    """Return the topic ids, by topic, of the batch passed to `foreachBatch`.

    Only a classic session on the driver knows its queries, and only the kohort source logs topic
    ids. Otherwise the result is empty.

    Args:
        frame: The batch.

    Raises:
        TopicIdError: The batch has records of two topics with the same name.
    """
    from py4j.protocol import Py4JError

    try:
        return ids_of(_offsets(frame))
    except (Py4JError, AttributeError, TypeError) as error:
        log.warning(
            "this version of Spark does not say what the batch was read from (%s): DeltaAppend "
            "cannot tell whether a topic was deleted and recreated",
            error,
        )
        return {}


def ids_of(offsets: Iterable[str]) -> dict[str, str]:
    """Return the topic ids by topic.

    Args:
        offsets: Spark's logged offset for each source of a batch, as JSON.

    Raises:
        TopicIdError: Two sources have different ids for one topic.
    """
    found: dict[str, str] = {}
    for text in offsets:
        offset = json.loads(text)
        ids = offset.get("ids") if isinstance(offset, dict) and "operator" in offset else None
        for topic, topic_id in (ids or {}).items():
            if found.setdefault(topic, topic_id) != topic_id:
                raise TopicIdError(
                    f"the batch has records of two topics named {topic!r} (ids {found[topic]} and "
                    f"{topic_id}): it was deleted and recreated between two sources of the query"
                )
    return found


def offsets_of(frame: DataFrame) -> list[OffsetJson]:
    """Return Spark's logged offset for each source of the batch passed to `foreachBatch`.

    Args:
        frame: The batch, from a classic session on the driver.
    """
    return [json.loads(text) for text in _offsets(frame)]


def running_query(frame: DataFrame) -> JavaQuery:
    """Return the JVM object of the query that passed a batch to `foreachBatch`.

    Args:
        frame: The batch.

    Returns:
        None if the driver's own session does not know the query, as with Spark Connect.
    """
    jvm_session = getattr(frame.sparkSession, "_jsparkSession", None)
    if jvm_session is None:  # Spark Connect
        return None
    query_id = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    queries = jvm_session.sharedState().activeStreamingQueries().values()
    return next((query for query in queries if str(query.id()) == query_id), None)


def _offsets(frame: DataFrame) -> list[str]:
    query = running_query(frame)
    if query is None:
        return []
    return [offset.json() for offset in _each(query.availableOffsets().values().iterator())]


def _each(offsets: _Iterator) -> Iterable[_Offset]:
    while offsets.hasNext():
        yield offsets.next()
