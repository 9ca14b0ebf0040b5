"""The transaction coordinator when a producer's epochs are exhausted; found by its simulator."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.transactions.coordinator import TransactionCoordinator
from kohort.group.transactions.events import (
    AddPartitions,
    EndAndRenew,
    InitProducer,
    MarkersWritten,
    Producer,
    TransactionConfig,
    TransactionEvent,
)
from kohort.group.transactions.transaction import (
    MAX_EPOCH,
    Transaction,
    TransactionState,
    record_of,
)
from kohort.types import TopicPartition

NAME, TIMEOUT_MS, FRESH = "orders", 60_000, 77
LAST = Producer(5, MAX_EPOCH - 1)  # the last epoch that a producer gets
OPENED = AddPartitions(
    transactional_id=NAME, producer=LAST, partitions=frozenset({TopicPartition("t", 0)})
)


class Driven:
    """A coordinator and its responses; `now` is the clock."""

    def __init__(self) -> None:
        self.coordinator = TransactionCoordinator(TransactionConfig())
        worn = Transaction(
            transactional_id=NAME,
            state=TransactionState.EMPTY,
            producer_id=LAST.producer_id,
            epoch=LAST.epoch,
            timeout_ms=TIMEOUT_MS,
        )
        self.coordinator.apply(record_of(worn))

    def ask(self, event: TransactionEvent) -> tuple[ErrorCode, Producer | None]:
        effects = self.coordinator.decide(event, 0, 0)
        self.coordinator.install(effects)
        return effects.error, effects.producer

    def time_out(self) -> None:
        """Let the open transaction time out."""
        effects = self.coordinator.decide_due(TIMEOUT_MS, 0)
        assert effects is not None
        self.coordinator.install(effects)
        self.ask(MarkersWritten(NAME))


def test_an_abort_by_time_does_not_lead_to_the_last_epoch() -> None:
    """KIP-890: no epoch follows it, so the next end could not be distinguished from this one."""
    driven = Driven()
    assert driven.ask(OPENED) == (ErrorCode.NONE, None)
    driven.time_out()
    end = EndAndRenew(transactional_id=NAME, producer=LAST, commits=False, fresh_id=FRESH)
    assert driven.ask(end) == (ErrorCode.NONE, Producer(FRESH, 0))
    assert driven.ask(end) == (ErrorCode.NONE, Producer(FRESH, 0))  # the response was lost


def test_nor_does_a_producer_that_begins_anew_after_it() -> None:
    """KIP-360."""
    driven = Driven()
    begin = InitProducer(
        transactional_id=NAME, timeout_ms=TIMEOUT_MS, expected=LAST, fresh_id=FRESH
    )
    assert driven.ask(OPENED) == (ErrorCode.NONE, None)
    driven.time_out()
    assert driven.ask(begin) == (ErrorCode.NONE, Producer(FRESH, 0))
    assert driven.ask(begin) == (ErrorCode.NONE, Producer(FRESH, 0))
