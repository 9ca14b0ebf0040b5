"""One task of a write, on an executor: sends Arrow batches and waits for acknowledgements.

No Python object is created per row. Spark reuses its Python workers for many tasks: a producer
that is kept in a worker already has connections, metadata and a producer id when the next task
begins.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kohort.errors import ErrorCode, KafkaError, KohortError

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa

    from kohort.client.producer.api import Producer
    from kohort.client.producer.arrow.delivery import ArrowDelivery
    from kohort.spark.options.writer import WriteOptions

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_LATE = "the brokers did not answer in time; check that they run and can be reached"
_REMEDIES: Mapping[int, str] = {
    ErrorCode.REQUEST_TIMED_OUT: f"{_LATE}. kafka.delivery.timeout.ms and kafka.max.block.ms are "
    "how long the writer waits",
    ErrorCode.NOT_ENOUGH_REPLICAS: "too few replicas of the partition are in sync; see to the "
    "brokers, or to the topic's min.insync.replicas",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "allow this client to write to the topic",
}

# Maximum number of producers: queries with different settings take turns in one worker.
KEPT = 4

# The process id is part of the key: a producer belongs to the process that created it.
_Key: TypeAlias = tuple[int, frozenset[tuple[str, str]]]

_idle: dict[_Key, Producer] = {}


class WriteError(KohortError, RuntimeError):
    """A task could not write all of its rows; the message names topic, cause and remedy."""


class TaskResult(NamedTuple):
    """The result of a task.

    Attributes:
        rows: Rows by topic, all acknowledged.
    """

    rows: Mapping[str, int]


def write_rows(
    options: WriteOptions, columns: Mapping[str, int], batches: Iterable[pa.RecordBatch]
) -> TaskResult:
    """Write all rows of a task and wait until each is acknowledged.

    Args:
        options: The options of the write.
        columns: Indexes of the record columns in the batches.
        batches: The rows.

    Raises:
        WriteError: A row could not be written, or has no topic.
    """
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:  # no producer for the many empty tasks after a filter
        return TaskResult({})
    with lent(options.settings) as producer:
        task = _Task(producer, options.topic, columns)
        task.add(first)
        for batch in filled:
            task.add(batch)
        return task.finish()


class _Open(NamedTuple):
    """Rows in flight."""

    topic: str
    rows: int
    future: Future[ArrowDelivery]


class _Task:
    """The rows of one task in flight."""

    def __init__(self, producer: Producer, topic: str | None, columns: Mapping[str, int]) -> None:
        self._producer = producer
        self._topic = topic
        self._columns = columns
        self._open: deque[_Open] = deque()
        self._rows: Counter[str] = Counter()

    def add(self, batch: pa.RecordBatch) -> None:
        """Send a batch; wait while the producer's memory is full."""
        for topic, rows in self._by_topic(batch):
            self._send(topic, rows)
        while self._open and self._open[0].future.done():
            self._settle()

    def finish(self) -> TaskResult:
        """Wait for all acknowledgements."""
        while self._open:
            self._settle()
        return TaskResult(dict(self._rows))

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        rows = _selected(batch, self._columns)
        if self._topic is not None:
            yield self._topic, rows
            return
        topics = batch.column(self._columns["topic"])
        if topics.null_count:
            raise WriteError(
                f"the data contains a null topic: {topics.null_count} of {len(topics)} rows of a "
                "batch have none. Use the topic option for setting one topic for all rows, or "
                f"filter these out. {self._so_far()}"
            )
        yield from split(rows, topics)

    def _send(self, topic: str, rows: pa.RecordBatch) -> None:
        try:
            future = self._producer.send_arrow(topic, rows)
        except (KohortError, ValueError) as error:
            raise self._failure(topic, error) from error
        self._open.append(_Open(topic, rows.num_rows, future))

    def _settle(self) -> None:
        topic, _, future = self._open.popleft()
        try:
            delivery = future.result()
        except KohortError as error:
            raise self._failure(topic, error) from error
        self._rows[topic] += delivery.rows

    def _failure(self, topic: str, error: KohortError | ValueError) -> WriteError:
        remedy = _remedy(error)
        hint = f" What to do: {remedy}." if remedy else ""
        return WriteError(f"cannot write to topic {topic}: {error}.{hint} {self._so_far()}")

    def _so_far(self) -> str:
        sent, on_their_way = self._rows.total(), 0
        for each in self._open:
            if not each.future.done():
                on_their_way += each.rows
            elif each.future.exception() is None:
                sent += each.rows
        text = f"{sent} rows of this task were already acknowledged and stay in their topics"
        if on_their_way:
            text += f", and {on_their_way} were in flight and may be there"
        return f"{text}; if the task is repeated they are there twice."


def split(rows: pa.RecordBatch, topics: pa.Array) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each topic, in order.

    Args:
        rows: The rows, without the column.
        topics: The topic of each row; none is null.
    """
    import pyarrow.compute as pc

    encoded = pc.dictionary_encode(topics)
    names: list[str] = encoded.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], rows
        return
    # The sort is stable: the rows of a topic stay in order.
    ordered = rows.take(pc.array_sort_indices(encoded.indices))
    start = 0
    for index, name in enumerate(names):
        count = pc.sum(pc.equal(encoded.indices, index)).as_py()
        yield name, ordered.slice(start, count)
        start += count


def _selected(batch: pa.RecordBatch, columns: Mapping[str, int]) -> pa.RecordBatch:
    """Return the columns of records without the topic; they are selected by index, not by name."""
    import pyarrow as pa

    wanted = {name: place for name, place in columns.items() if name != "topic"}
    arrays = [batch.column(place) for place in wanted.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(wanted))


def _remedy(error: KohortError | ValueError) -> str | None:
    codes = _codes(error)
    if any(code in _TOO_LARGE for code in codes):
        return (
            "make the value smaller, or raise kafka.max.request.size and the topic's "
            "max.message.bytes"
        )
    return next((_REMEDIES[code] for code in codes if code in _REMEDIES), None)


def _codes(error: KohortError | ValueError) -> list[int]:
    from kohort.client.producer.arrow.delivery import ArrowDeliveryError

    if isinstance(error, ArrowDeliveryError):
        causes: list[KohortError] = [each.error for each in error.failures.values()]
    else:
        causes = [error] if isinstance(error, KohortError) else []
    return [each.code for each in causes if isinstance(each, KafkaError)]


@contextmanager
def lent(settings: Mapping[str, str]) -> Iterator[Producer]:
    """Lend a producer to one task.

    A producer whose task failed is closed without waiting: Spark retries the task, so writing the
    rest of the failed one's records would be useless.

    Args:
        settings: Producer settings by Kafka's own names.
    """
    key = (os.getpid(), frozenset(settings.items()))
    producer = _idle.pop(key, None) or _made(settings)
    try:
        yield producer
    except BaseException:
        producer.close(0)
        raise
    _keep(key, producer)


def _made(settings: Mapping[str, str]) -> Producer:
    from kohort.client.producer.api import Producer

    return Producer.from_config(settings)


def _keep(key: _Key, producer: Producer) -> None:
    doubles = _idle.pop(key, None)
    _idle[key] = producer
    while len(_idle) > KEPT:
        _idle.pop(next(iter(_idle))).close()
    if doubles is not None:
        doubles.close()
