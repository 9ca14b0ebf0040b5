"""What a producer learns of a record that it sent."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kohort.errors import KohortError, RequestTimedOutError

if TYPE_CHECKING:
    from kohort.client._deliveries import Watcher
    from kohort.client.config import ProducerConfig

log = logging.getLogger("kohort.client")


class RecordMetadata(NamedTuple):
    """Where a record went.

    Attributes:
        topic: Its topic.
        partition: Its partition.
        offset: Its offset; -1 when the broker did not say (acks 0).
        timestamp: Milliseconds since the epoch, the broker's if that is the topic's rule.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class Completable(Protocol):
    """What is told of a record's fate: a future."""

    def set_result(self, result: RecordMetadata, /) -> None:
        """Take where the record went."""

    def set_exception(self, exception: Exception, /) -> None:
        """Take why it did not."""

    def done(self) -> bool:
        """Whether it was cancelled."""


def tell(future: Completable, outcome: RecordMetadata | Exception) -> None:
    """Complete a future, unless its owner has cancelled it."""
    try:
        if isinstance(outcome, RecordMetadata):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)
    except Exception:
        if not future.done():
            raise


def tell_all(watchers: Iterable[Watcher]) -> None:
    """Complete the futures of records whose fate is known; none of them can hurt the others."""
    for delivery, future in watchers:
        outcome = delivery.outcome()
        assert outcome is not None
        try:
            tell(future, outcome)
        except BaseException:
            # An exit out of a callback would otherwise end the thread that all records need.
            log.exception("a callback of a record for %s raised", _where(outcome))


def _where(outcome: RecordMetadata | KohortError) -> str:
    if isinstance(outcome, RecordMetadata):
        return f"{outcome.topic}-{outcome.partition} at offset {outcome.offset}"
    return f"a partition ({outcome})"


def no_room(config: ProducerConfig) -> RequestTimedOutError:
    """Return the error of a record for which no memory became free."""
    return RequestTimedOutError(
        f"buffer.memory of {config.buffer_memory} bytes was full for {config.max_block_ms} ms:"
        " records are added faster than the brokers take them"
    )
