"""The outcome of sent records."""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol, TypeVar

from kohort.errors import (
    AuthenticationError,
    KafkaError,
    KohortError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimedOutError,
    TlsError,
)
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.client.config.definitions import ProducerConfig
    from kohort.client.producer._deliveries import Watcher
    from kohort.client.producer.batch import Batch

log = logging.getLogger("kohort.client")

# How many partitions and causes are named when records are lost.
_MOST_LOST = 10
# How many partitions the error of a flush names.
_SHOWN = 5
_UNSURE = "the records were sent and may have been written"


# The process in which a thread is completing futures.
_telling = threading.local()


class RecordMetadata(NamedTuple):
    """Where a record was written.

    Attributes:
        topic: Its topic.
        partition: Its partition.
        offset: Its offset; -1 when the broker did not report it (acks 0).
        timestamp: Milliseconds since the epoch; the broker's time if the topic is configured so.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Completable(Protocol[T_contra]):
    """A future that receives the outcome of a record or a table."""

    def set_result(self, result: T_contra, /) -> None:
        """Set the result."""

    def set_exception(self, exception: Exception, /) -> None:
        """Set the delivery error."""

    def done(self) -> bool:
        """Whether it was cancelled."""


def tell(future: Completable[T], outcome: T | Exception) -> None:
    """Complete a future, unless it was cancelled."""
    try:
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    except Exception:
        if not future.done():
            raise


def tell_all(watchers: Iterable[Watcher]) -> None:
    """Complete the futures of records with a known outcome; errors in one do not affect others."""
    for delivery, future in watchers:
        outcome = delivery.outcome()
        assert outcome is not None
        tell_safely(future, outcome)


def tell_safely(future: Completable[T], outcome: T | Exception) -> None:
    """Complete a future in the client's thread, which continues whatever the callbacks do."""
    outer, _telling.pid = getattr(_telling, "pid", None), os.getpid()
    try:
        tell(future, outcome)
    except BaseException as error:
        leave_if_forked(error)
        # SystemExit from a callback would otherwise end the thread that all records need.
        log.exception("a delivery callback raised: %s", outcome)
    leave_if_forked()
    _telling.pid = outer


def is_telling() -> bool:
    """Whether this is a client's thread that is completing futures."""
    return getattr(_telling, "pid", None) is not None


def leave_if_forked(error: BaseException | None = None) -> None:
    """End this process if a callback in the client's thread has forked and this is the child.

    The child would otherwise continue in the parent's loop, on the parent's sockets. Exit handlers
    such as those of `atexit` do not run: they belong to the parent.

    Args:
        error: What the callback raised; None when it returned.
    """
    pid = getattr(_telling, "pid", None)
    if pid is not None and pid != os.getpid():
        _leave(error)


def _leave(error: BaseException | None) -> NoReturn:
    status = 0
    try:
        if error is None:
            sys.stderr.write(
                "kohort: a delivery callback forked, and the child returned from it into the"
                " client's thread, which is the parent's: the child ends. Call os._exit in it\n"
            )
        elif isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
            status = (error.code or 0) & 0xFF
        else:
            status = 1
            shown = [f"{error.code}\n"] if isinstance(error, SystemExit) else None
            sys.stderr.writelines(shown or traceback.format_exception(error))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


DEFECT = "a bug in the producer: please report it; the affected records fail"


def closed() -> LocalProtocolError:
    """Return the error of a record that is sent after closing."""
    return LocalProtocolError("the producer is closed")


def broken(error: Exception) -> LocalProtocolError:
    """Return the error of records that failed because of an unexpected exception."""
    made = LocalProtocolError(f"a bug in the producer: {type(error).__name__}: {error}")
    made.__cause__ = error
    return made


def unsure(error: KohortError) -> KohortError:
    """Return the error of records that were sent but have an unknown outcome."""
    made: KohortError
    if isinstance(error, RequestTimedOutError):
        made = RequestTimedOutError(f"{error.message}; {_UNSURE}")
    elif isinstance(error, TlsError):
        made = TlsError(f"{error.message}; {_UNSURE}")
    elif isinstance(error, AuthenticationError):
        made = AuthenticationError(error.code, f"{error.message}; {_UNSURE}")
    elif isinstance(error, KafkaError):
        made = KafkaError(error.code, f"{error.message}; {_UNSURE}")
    elif isinstance(error, RemoteProtocolError):
        made = RemoteProtocolError(f"{error}; {_UNSURE}")
    else:
        made = LocalProtocolError(f"{error}; {_UNSURE}")
    made.__cause__ = error
    return made


def not_in_time(
    batches: Iterable[Batch], timeout_s: float | None, cause: KohortError | None
) -> RequestTimedOutError:
    """Return the error of a flush that ended before the outcome of all records was known.

    Args:
        batches: The batches without a known outcome.
        timeout_s: The caller's timeout, in seconds.
        cause: Why they are not written, if known.
    """
    left: Counter[str] = Counter()
    for batch in batches:
        left[f"{batch.partition.topic}-{batch.partition.partition}"] += batch.builder.count
    where = ", ".join(f"{name}: {count}" for name, count in left.most_common(_SHOWN))
    more = f" and {len(left) - _SHOWN} more partitions" if len(left) > _SHOWN else ""
    return RequestTimedOutError(
        f"{left.total()} records were not acknowledged in {timeout_s or 0:g} s ({where}{more})"
        + (f": {cause}" if cause else "")
    )


def too_old(batch: Batch, timeout_ms: int, cause: KohortError | None) -> RequestTimedOutError:
    """Return the error of a batch that was given up.

    Args:
        batch: The batch.
        timeout_ms: The maximum age of the batch, in milliseconds.
        cause: Why it was not written, if known.
    """
    topic, partition = batch.partition
    error = RequestTimedOutError(
        f"{batch.builder.count} records for {topic}-{partition} were not acknowledged in"
        f" {timeout_ms} ms (delivery.timeout.ms)" + (f": {cause}" if cause else "")
    )
    error.__cause__ = cause
    return error


def no_room(config: ProducerConfig, cause: KohortError | None) -> RequestTimedOutError:
    """Return the error of a record for which no memory became free.

    Args:
        config: Settings.
        cause: Why other records are not written, if known.
    """
    why = cause or "records are added faster than the brokers take them"
    error = RequestTimedOutError(
        f"buffer.memory of {config.buffer_memory} bytes was full for {config.max_block_ms} ms:"
        f" {why}"
    )
    error.__cause__ = cause
    return error


class LostRecords:
    """Logs undelivered records when no caller reads their futures."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[TopicPartition, str]] = Counter()

    def note(self, partition: TopicPartition, count: int, error: KohortError) -> None:
        """Count lost records."""
        self._counts[partition, str(error)] += count

    def log(self) -> None:
        """Log how many records were lost, where and why."""
        for (partition, why), count in self._counts.most_common(_MOST_LOST):
            where = f"{partition.topic}-{partition.partition}"
            log.warning("%d records for %s are lost: %s", count, where, why)
        if self._counts:
            total = self._counts.total()
            log.warning("%d records are lost in total, from a producer that was not closed", total)
