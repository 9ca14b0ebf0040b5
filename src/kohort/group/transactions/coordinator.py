"""The transaction coordinator: it fences producers and tracks and ends their transactions.

A shell drives it like a shard of groups:

    effects = coordinator.decide(event, now, wall_ms)     # changes nothing
    log.append(effects.record)                   # on failure drop the effects
    coordinator.install(effects)
    write(effects.markers)                       # then decide(MarkersWritten(...))
    send(effects.error, effects.producer)

A decision is in the log before its markers are written, so a restarted coordinator knows which
markers may be missing (`unended`).
"""

from __future__ import annotations

from immutables import Map

from kohort.group.machine import Deadlines
from kohort.group.transactions.events import (
    Markers,
    TransactionConfig,
    TransactionDeadline,
    TransactionEffects,
    TransactionEvent,
)
from kohort.group.transactions.table import (
    DEAD,
    PREPARE_COMMIT,
    TRANSACTION,
    TransactionDecision,
    watched,
)
from kohort.group.transactions.transaction import (
    Transaction,
    TransactionRecord,
    Transactions,
    fold,
)
from kohort.wire.records.marker import Marker


class TransactionCoordinator:
    """The producers of one partition of `__transaction_state`.

    Attributes:
        config: Settings.
        log: The fold of the records; a value.
        deadlines: When transactions time out and idle producers expire.
    """

    def __init__(self, config: TransactionConfig) -> None:
        """Make a coordinator without producers."""
        self.config = config
        self.log: Transactions = Map()
        self.deadlines: Deadlines[TransactionDeadline] = Deadlines()

    def apply(self, record: TransactionRecord) -> None:
        """Apply a record while the log is read.

        Raises:
            RemoteProtocolError: The record has an unknown transaction state.
        """
        self.log = fold(self.log, record)

    def load_finished(self, now: int) -> None:
        """Start the deadlines of all producers at `now`, as if each had just sent a request."""
        for known in self.log.values():
            self.deadlines = watched(self.deadlines, known, self.config, now)

    def unended(self) -> list[Markers]:
        """Return the markers of decided transactions, which some partitions may lack."""
        return [
            Markers(
                name,
                Marker(known.producer_id, known.epoch, known.state is PREPARE_COMMIT),
                known.partitions,
            )
            for name, known in sorted(self.log.items())
            if known.is_ending
        ]

    def needs_id(self, transactional_id: str) -> bool:
        """Return whether a producer's next `InitProducer` or `EndAndRenew` needs an unused id."""
        known = self.log.get(transactional_id)
        return known is None or known.is_exhausted

    def decide(self, event: TransactionEvent, now: int, wall_ms: int) -> TransactionEffects:
        """Work out the effects of a request; change nothing.

        Args:
            event: The event.
            now: Time in milliseconds, of a clock that never goes back.
            wall_ms: Time of day in milliseconds since 1970.
        """
        return self._decide(event, now, wall_ms, self.deadlines)

    def decide_due(self, now: int, wall_ms: int) -> TransactionEffects | None:
        """Work out the effects of the earliest deadline, None if it is not due; see `decide`."""
        earliest = self.deadlines.next()
        if earliest is None or earliest[0] > now:
            return None
        return self._decide(earliest[1], now, wall_ms, self.deadlines.cancel(earliest[1]))

    def _decide(
        self,
        event: TransactionEvent | TransactionDeadline,
        now: int,
        wall_ms: int,
        deadlines: Deadlines[TransactionDeadline],
    ) -> TransactionEffects:
        name = event.transactional_id
        known = self.log.get(name) or Transaction(transactional_id=name)
        decision = TransactionDecision(self.config, known, known, now, wall_ms, deadlines)
        TRANSACTION.run(decision, type(event), event)
        return decision.effects()

    def install(self, effects: TransactionEffects) -> None:
        """Install the decision, once its record is in the log."""
        known = effects.transaction
        if known.state is not DEAD:
            self.log = self.log.set(known.transactional_id, known)
        elif known.transactional_id in self.log:
            self.log = self.log.delete(known.transactional_id)
        self.deadlines = effects.deadlines
