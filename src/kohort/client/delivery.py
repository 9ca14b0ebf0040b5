"""A record on its way to the brokers, and what its sender learns of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from kohort.errors import KohortError
from kohort.wire.schema import Buffer


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


class Delivery(Protocol):
    """What is told of a record's fate: a future."""

    def set_result(self, result: RecordMetadata, /) -> None:
        """Take where the record went."""

    def set_exception(self, exception: KohortError, /) -> None:
        """Take why it did not."""

    def done(self) -> bool:
        """Whether it was cancelled."""


class NewRecord(NamedTuple):
    """A record on its way, as bytes.

    Attributes:
        topic: Where it goes.
        partition: Where it goes, None to have one chosen.
        timestamp: Milliseconds since the epoch.
        key: Its key.
        value: Its value.
        headers: Names and values.
        size: What `record_size` says.
    """

    topic: str
    partition: int | None
    timestamp: int
    key: Buffer | None
    value: Buffer | None
    headers: Sequence[tuple[str, Buffer | None]]
    size: int


def tell(delivery: Delivery, outcome: RecordMetadata | KohortError) -> None:
    """Complete a future, unless its owner has cancelled it."""
    try:
        if isinstance(outcome, RecordMetadata):
            delivery.set_result(outcome)
        else:
            delivery.set_exception(outcome)
    except Exception:
        if not delivery.done():
            raise
