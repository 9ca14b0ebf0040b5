"""The transition table of a transactional producer: each request in each state."""

from __future__ import annotations

from msgspec import Struct

from kohort.errors import ErrorCode
from kohort.group.machine import Deadlines, Row, Table, never, refuse, row
from kohort.group.transactions.events import (
    AddPartitions,
    EndAndRenew,
    EndTransaction,
    InitProducer,
    Markers,
    MarkersWritten,
    Producer,
    ProducerExpired,
    TransactionConfig,
    TransactionDeadline,
    TransactionEffects,
    TransactionTimedOut,
    VerifyPartition,
)
from kohort.group.transactions.transaction import (
    MAX_EPOCH,
    NO_EPOCH,
    Transaction,
    TransactionState,
    record_of,
)
from kohort.values import replace
from kohort.wire.records.marker import Marker

DEAD, EMPTY, ONGOING = TransactionState.DEAD, TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
ENDING = (PREPARE_COMMIT, PREPARE_ABORT)
COMPLETE = (COMPLETE_COMMIT, COMPLETE_ABORT)
RESTING = (EMPTY, *COMPLETE)
KNOWN = (EMPTY, ONGOING, *ENDING, *COMPLETE)
ANY = (DEAD, *KNOWN)
_EPOCH_PER_TRANSACTION = 2  # the protocol version from which each transaction has its own epoch


class TransactionDecision(Struct):
    """One event and one producer, while the table's handlers run.

    Attributes:
        config: Settings.
        known: The producer as stored in the log.
        transaction: The producer after this event.
        now: Time in milliseconds, of a clock that never goes back.
        wall_ms: Time of day in milliseconds since 1970.
        deadlines: The deadlines after this event.
        error: The answer.
        producer: The identity that the producer gets.
        markers: The markers to write.
        why: The error of a refused request, once a guard has found one.
    """

    config: TransactionConfig
    known: Transaction
    transaction: Transaction
    now: int
    wall_ms: int
    deadlines: Deadlines[TransactionDeadline]
    error: ErrorCode = ErrorCode.NONE
    producer: Producer | None = None
    markers: Markers | None = None
    why: object = None

    @property
    def state(self) -> TransactionState:
        """Return the producer's state after this event."""
        return self.transaction.state

    def refuse(self, _event: object) -> None:
        """Answer with the error in `why`, and discard everything else."""
        assert isinstance(self.why, ErrorCode)
        self.error = self.why

    def become(self, transaction: Transaction) -> None:
        """Change the producer, and start the deadline of its new state."""
        self.transaction = replace(transaction, updated_ms=self.wall_ms)
        self.deadlines = watched(self.deadlines, self.transaction, self.config, self.now)

    def told(self) -> None:
        """Answer with the producer's next id and epoch."""
        self.producer = Producer(self.transaction.producer_id, self.transaction.epoch)

    def end(self, commits: bool) -> None:
        """Write the markers to the partitions."""
        known = self.transaction
        marker = Marker(known.producer_id, known.epoch, commits)
        self.markers = Markers(known.transactional_id, marker, known.partitions)

    def effects(self) -> TransactionEffects:
        """Return the effects for the shell."""
        changed = self.transaction != self.known
        return TransactionEffects(
            transaction=self.transaction,
            deadlines=self.deadlines,
            record=record_of(self.transaction) if changed else None,
            error=self.error,
            producer=self.producer,
            markers=self.markers,
        )


def watched(
    deadlines: Deadlines[TransactionDeadline],
    known: Transaction,
    config: TransactionConfig,
    now: int,
) -> Deadlines[TransactionDeadline]:
    """Run only the deadline that belongs to the producer's state."""
    name = known.transactional_id
    deadlines = deadlines.cancel(TransactionTimedOut(name)).cancel(ProducerExpired(name))
    if known.state is ONGOING:
        return deadlines.set(TransactionTimedOut(name), now + known.timeout_ms)
    if known.state in RESTING:
        at = now + config.transactional_id_expiration_ms
        return deadlines.set(ProducerExpired(name), at)
    return deadlines


# --------------------------------------------------------------------------------- InitProducerId


def timeout_error(decision: TransactionDecision, init: InitProducer) -> ErrorCode | None:
    """Return the error for a timeout that is not positive or exceeds the broker's limit."""
    allowed = 0 < init.timeout_ms <= decision.config.transaction_max_timeout_ms
    return None if allowed else ErrorCode.INVALID_TRANSACTION_TIMEOUT


def number_error(decision: TransactionDecision, init: InitProducer) -> ErrorCode | None:
    """Return the error for a producer whose id was replaced."""
    expected, known = init.expected, decision.transaction
    if expected is None or expected.producer_id == known.producer_id:
        return None
    rotated = expected.producer_id == known.previous_producer_id
    if rotated and expected.epoch >= MAX_EPOCH - 1:
        return None
    return ErrorCode.PRODUCER_FENCED


def epoch_error(decision: TransactionDecision, init: InitProducer) -> ErrorCode | None:
    """Return the error for an epoch that is neither the current nor the previous one."""
    expected, known = init.expected, decision.transaction
    if expected is None or expected.epoch in (known.epoch, known.last_epoch):
        return None
    return ErrorCode.PRODUCER_FENCED


def create(decision: TransactionDecision, init: InitProducer) -> None:
    """Register a new producer."""
    last = NO_EPOCH if init.expected is None else init.expected.epoch
    decision.become(
        replace(
            decision.transaction,
            state=EMPTY,
            producer_id=init.fresh_id,
            epoch=0,
            last_epoch=last,
            timeout_ms=init.timeout_ms,
        )
    )
    decision.told()


def is_repeated(decision: TransactionDecision, init: InitProducer) -> bool:
    """Return whether this retries an answered request: it has the previous identity."""
    return init.expected is not None and init.expected.epoch != decision.transaction.epoch


def tell_again(decision: TransactionDecision, init: InitProducer) -> None:
    """Repeat the first answer, with the epoch that it assigned."""
    decision.become(_usable(_begun(decision.transaction, init), init.fresh_id))
    decision.told()


def _usable(known: Transaction, fresh_id: int) -> Transaction:
    """Replace the producer's id if its next epoch would be the last."""
    if known.epoch < MAX_EPOCH:
        return known
    return replace(known, producer_id=fresh_id, previous_producer_id=known.producer_id, epoch=0)


def _begun(known: Transaction, init: InitProducer) -> Transaction:
    return replace(
        known,
        state=EMPTY,
        timeout_ms=init.timeout_ms,
        partitions=frozenset(),
        start_ms=-1,
    )


def renew(decision: TransactionDecision, init: InitProducer) -> None:
    """Fence the holder of this producer id; replace an id whose epochs are used up."""
    known = decision.transaction
    rotates = known.is_exhausted
    begun = replace(
        _begun(known, init),
        producer_id=init.fresh_id if rotates else known.producer_id,
        previous_producer_id=known.producer_id if rotates else known.previous_producer_id,
        epoch=0 if rotates else known.epoch + 1,
        last_epoch=NO_EPOCH if init.expected is None else known.epoch,
    )
    decision.become(begun)
    decision.told()


def fence(decision: TransactionDecision, _init: InitProducer) -> None:
    """Abort the former producer's transaction; the new producer retries afterwards."""
    _fence(decision)
    decision.error = ErrorCode.CONCURRENT_TRANSACTIONS


def _fence(decision: TransactionDecision) -> None:
    """Abort with the next epoch; the fenced producer may later request that epoch (KIP-588)."""
    known = decision.transaction
    epoch = min(known.epoch + 1, MAX_EPOCH)
    decision.become(replace(known, state=PREPARE_ABORT, epoch=epoch, last_epoch=known.epoch))
    decision.end(commits=False)


def is_ending(_decision: TransactionDecision, _event: object) -> ErrorCode:
    """Return the error for any request while the markers are being written."""
    return ErrorCode.CONCURRENT_TRANSACTIONS


# ------------------------------------------------------------------------------------- partitions


def producer_error(
    decision: TransactionDecision, event: AddPartitions | VerifyPartition | EndTransaction
) -> ErrorCode | None:
    """Return the error for a producer that is unknown or was replaced."""
    known = decision.transaction
    if known.state is DEAD or event.producer.producer_id != known.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return None if event.producer.epoch == known.epoch else ErrorCode.PRODUCER_FENCED


def takes_part(decision: TransactionDecision, added: AddPartitions) -> bool:
    """Return whether all the partitions are in the transaction already."""
    return added.partitions <= decision.transaction.partitions


def nothing(_decision: TransactionDecision, _event: object) -> None:
    """Answer without an error."""


def add(decision: TransactionDecision, added: AddPartitions) -> None:
    """Add partitions; the first ones begin the transaction and start its timeout."""
    known = decision.transaction
    deadlines = decision.deadlines
    begins = known.state is not ONGOING
    decision.become(
        replace(
            decision.transaction,
            state=ONGOING,
            partitions=added.partitions if begins else known.partitions | added.partitions,
            start_ms=decision.wall_ms if begins else known.start_ms,
            client_version=added.client_version,
        )
    )
    if not begins:
        decision.deadlines = deadlines


def not_part(decision: TransactionDecision, verified: VerifyPartition) -> ErrorCode | None:
    """Return the error for a partition that is not in the transaction."""
    known = decision.transaction
    joined = known.state is ONGOING and verified.partition in known.partitions
    return None if joined else ErrorCode.TRANSACTION_ABORTABLE


# -------------------------------------------------------------------------------------- the ending


def prepare(decision: TransactionDecision, end: EndTransaction) -> None:
    """Decide the outcome of the transaction."""
    state = PREPARE_COMMIT if end.commits else PREPARE_ABORT
    decision.become(replace(decision.transaction, state=state))
    decision.end(end.commits)


def otherwise(decision: TransactionDecision, end: EndTransaction) -> ErrorCode | None:
    """Return the error for an end without a transaction, or with the other outcome."""
    ended = {True: (PREPARE_COMMIT, COMPLETE_COMMIT), False: (PREPARE_ABORT, COMPLETE_ABORT)}
    return None if decision.state in ended[end.commits] else ErrorCode.INVALID_TXN_STATE


def complete(decision: TransactionDecision, _written: MarkersWritten) -> None:
    """Complete the transaction; replace the producer's id if its epochs are used up."""
    known = decision.transaction
    rotates = known.next_producer_id >= 0
    decision.become(
        replace(
            decision.transaction,
            state=COMPLETE_COMMIT if known.state is PREPARE_COMMIT else COMPLETE_ABORT,
            producer_id=known.next_producer_id if rotates else known.producer_id,
            previous_producer_id=known.producer_id if rotates else known.previous_producer_id,
            next_producer_id=-1,
            epoch=0 if rotates else known.epoch,
            partitions=frozenset(),
        )
    )


# ------------------------------------------------------------- the ending, with an epoch for each


def _repeats(known: Transaction, end: EndAndRenew) -> bool:
    """Return whether this retries an end that was already answered."""
    return end.producer.epoch == known.epoch - 1 or _repeats_rotation(known, end)


def _repeats_rotation(known: Transaction, end: EndAndRenew) -> bool:
    """Return whether this retries an end that replaced the producer's id."""
    was = end.producer.producer_id == known.previous_producer_id
    return was and end.producer.epoch == MAX_EPOCH - 1 and known.epoch == 0


def renewing_error(decision: TransactionDecision, end: EndAndRenew) -> ErrorCode | None:
    """Return the error for a producer that is unknown or was replaced."""
    known = decision.transaction
    rotated = _repeats_rotation(known, end)
    if known.state is DEAD or (end.producer.producer_id != known.producer_id and not rotated):
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    again = known.state in (*ENDING, *COMPLETE) and _repeats(known, end)
    current = known.state not in ENDING and end.producer.epoch == known.epoch
    return None if again or current else ErrorCode.PRODUCER_FENCED


def renewing_otherwise(decision: TransactionDecision, end: EndAndRenew) -> ErrorCode | None:
    """Return the error for an end with nothing to commit, or with the other outcome."""
    known = decision.transaction
    if _repeats(known, end):
        ended = COMPLETE_COMMIT if end.commits else COMPLETE_ABORT
        return None if known.state is ended else ErrorCode.INVALID_TXN_STATE
    return ErrorCode.INVALID_TXN_STATE if end.commits else None


def ending_otherwise(decision: TransactionDecision, end: EndAndRenew) -> ErrorCode:
    """Return the error for an end while another one is in progress."""
    same = decision.state is (PREPARE_COMMIT if end.commits else PREPARE_ABORT)
    return ErrorCode.CONCURRENT_TRANSACTIONS if same else ErrorCode.INVALID_TXN_STATE


def has_ended(decision: TransactionDecision, end: EndAndRenew) -> bool:
    """Return whether this end was already carried out."""
    return _repeats(decision.transaction, end)


def tell_next(decision: TransactionDecision, end: EndAndRenew) -> None:
    """Repeat the first answer."""
    usable = _usable(decision.transaction, end.fresh_id)
    if usable is not decision.transaction:
        decision.become(usable)
    decision.told()


def prepare_and_renew(decision: TransactionDecision, end: EndAndRenew) -> None:
    """Decide the outcome; its markers carry the producer's next epoch.

    So each partition refuses writes of an earlier epoch that are still in flight.
    """
    known = decision.transaction
    next_id = end.fresh_id if known.is_exhausted else -1
    decision.become(
        replace(
            decision.transaction,
            state=PREPARE_COMMIT if end.commits else PREPARE_ABORT,
            epoch=known.epoch + 1,
            last_epoch=known.epoch,
            next_producer_id=next_id,
            start_ms=known.start_ms if known.state is ONGOING else decision.wall_ms,
            client_version=_EPOCH_PER_TRANSACTION,
        )
    )
    decision.end(end.commits)
    decision.producer = Producer(next_id, 0) if next_id >= 0 else None
    if decision.producer is None:
        decision.told()


# ------------------------------------------------------------------------------------------- time


def abort_late(decision: TransactionDecision, _due: TransactionTimedOut) -> None:
    """Abort a transaction that timed out, and fence its producer."""
    _fence(decision)


def forget(decision: TransactionDecision, _due: ProducerExpired) -> None:
    """Forget an idle producer."""
    name = decision.transaction.transactional_id
    decision.transaction = Transaction(transactional_id=name)


ROWS: tuple[Row[TransactionState, TransactionDecision], ...] = (
    # a producer begins
    refuse(ANY, InitProducer, timeout_error, rule="KIP-98"),
    row(DEAD, InitProducer, create, to=EMPTY, rule="KIP-98"),
    refuse(KNOWN, InitProducer, number_error, rule="KIP-360"),
    refuse(ENDING, InitProducer, is_ending, rule="KIP-98"),
    row(ENDING, InitProducer, never),
    row(ONGOING, InitProducer, fence, to=PREPARE_ABORT, rule="KIP-98"),
    refuse(RESTING, InitProducer, epoch_error, rule="KIP-360"),
    row(RESTING, InitProducer, tell_again, when=is_repeated, to=EMPTY, rule="KIP-360"),
    row(RESTING, InitProducer, renew, to=EMPTY, rule="KIP-98"),
    # partitions join
    refuse(ANY, AddPartitions, producer_error, rule="KIP-98"),
    row(DEAD, AddPartitions, never),
    refuse(ENDING, AddPartitions, is_ending, rule="KIP-98"),
    row(ENDING, AddPartitions, never),
    row(ONGOING, AddPartitions, nothing, when=takes_part, rule="KIP-98"),
    row((ONGOING, *RESTING), AddPartitions, add, to=ONGOING, rule="KIP-98"),
    refuse(ANY, VerifyPartition, producer_error, rule="KIP-890"),
    row(DEAD, VerifyPartition, never),
    refuse(ENDING, VerifyPartition, is_ending, rule="KIP-890"),
    row(ENDING, VerifyPartition, never),
    refuse((ONGOING, *RESTING), VerifyPartition, not_part, rule="KIP-890"),
    row((ONGOING, *RESTING), VerifyPartition, nothing, rule="KIP-890"),
    # the transaction ends
    refuse(ANY, EndTransaction, producer_error, rule="KIP-98"),
    row(DEAD, EndTransaction, never),
    row(ONGOING, EndTransaction, prepare, to=ENDING, rule="KIP-98"),
    refuse((EMPTY, *ENDING, *COMPLETE), EndTransaction, otherwise, rule="KIP-98"),
    refuse(ENDING, EndTransaction, is_ending, rule="KIP-98"),
    row((EMPTY, *ENDING), EndTransaction, never),
    row(COMPLETE, EndTransaction, nothing, rule="KIP-98"),
    refuse(ANY, EndAndRenew, renewing_error, rule="KIP-890"),
    row(DEAD, EndAndRenew, never),
    row(ONGOING, EndAndRenew, prepare_and_renew, to=ENDING, rule="KIP-890"),
    refuse(ENDING, EndAndRenew, ending_otherwise, rule="KIP-890"),
    row(ENDING, EndAndRenew, never),
    refuse(RESTING, EndAndRenew, renewing_otherwise, rule="KIP-890"),
    row(COMPLETE, EndAndRenew, tell_next, when=has_ended, rule="KIP-890"),
    row(RESTING, EndAndRenew, prepare_and_renew, to=PREPARE_ABORT, rule="KIP-890"),
    row(PREPARE_COMMIT, MarkersWritten, complete, to=COMPLETE_COMMIT, rule="KIP-98"),
    row(PREPARE_ABORT, MarkersWritten, complete, to=COMPLETE_ABORT, rule="KIP-98"),
    row((DEAD, EMPTY, ONGOING, *COMPLETE), MarkersWritten, nothing),
    # time
    row(ONGOING, TransactionTimedOut, abort_late, to=PREPARE_ABORT, rule="KIP-98"),
    row((DEAD, *RESTING, *ENDING), TransactionTimedOut, nothing),
    row(RESTING, ProducerExpired, forget, to=DEAD, rule="KIP-98"),
    row((DEAD, ONGOING, *ENDING), ProducerExpired, nothing),
)

TRANSACTION = Table(
    "transaction",
    TransactionState,
    ROWS,
    total=(
        InitProducer,
        AddPartitions,
        VerifyPartition,
        EndTransaction,
        EndAndRenew,
        MarkersWritten,
        TransactionTimedOut,
        ProducerExpired,
    ),
)
