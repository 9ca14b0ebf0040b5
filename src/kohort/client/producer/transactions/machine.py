"""The states of a transactional producer (KIP-98), without I/O: events in, next step out.

    UNINITIALIZED -> INITIALIZING -> READY -> IN_TRANSACTION -> COMMITTING -> READY
                                                 |                 |
                                                 v                 v
                                              ABORTING <- ABORTABLE_ERROR        FATAL_ERROR

`COMMITTING` starts by waiting for the records of the transaction. Until the request to end it is
sent, an interruption cancels the commit. After that the broker may have committed, so only another
commit can find out. An abort cannot be cancelled.

The end of a transaction starts a new epoch: with version 2 of transactions (KIP-890) it comes with
the broker's answer, otherwise the producer requests it with its current id (KIP-360). In that case
a commit keeps its epoch, unless a request to end the transaction may still be in transit, which
could otherwise end a later one.

A refused epoch does not prove that another producer has taken over: a transaction that was open for
too long also ends like this. The coordinator tells the difference when asked to abort. The next
epoch (KIP-588) is not requested before: a fenced producer would not get one, and Apache Kafka would
abort the open transaction of its successor.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from kohort.client.producer.batch import Identity
from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.group.machine import Row, State, Table, row
from kohort.values import replace


class TransactionState(State):
    """The state of a transactional producer."""

    UNINITIALIZED = "has no producer id yet"
    INITIALIZING = "asks for a producer id"
    READY = "no transaction is open"
    IN_TRANSACTION = "a transaction is open"
    COMMITTING = "the transaction is being committed"
    ABORTING = "the transaction is being aborted"
    ABORTABLE_ERROR = "the open transaction has failed and must be aborted"
    FATAL_ERROR = "the producer has failed permanently"


class Step(Enum):
    """The next action of the I/O shell."""

    NONE = "nothing"
    IDENTIFY = "ask for a producer id"
    RENEW = "ask for the next epoch of the producer id"
    FLUSH = "wait until the outcome of all records is known"
    DROP = "drop unsent records, and wait until the outcome of the others is known"
    COMMIT = "ask the coordinator to commit"
    ABORT = "ask the coordinator to abort"


class TransactionSession(Struct, frozen=True, kw_only=True):
    """The data of the machine.

    Attributes:
        state: The current state.
        identity: The producer id and its epoch; None before one is assigned.
        has_v2: Whether the transaction follows version 2 (KIP-890).
        is_started: Whether the coordinator may know about the transaction.
        is_sent: Whether the request to end it may have been sent.
        has_ended: Whether the transaction has ended, and only the next epoch is missing.
        is_unsure: Whether a request to end it may still be in transit.
        is_outdated: Whether the broker has refused the epoch.
        is_lost: Whether the broker has aborted the transaction on its own.
        cause: The first error in it, or why the producer has failed permanently.
    """

    state: TransactionState = TransactionState.UNINITIALIZED
    identity: Identity | None = None
    has_v2: bool = False
    is_started: bool = False
    is_sent: bool = False
    has_ended: bool = False
    is_unsure: bool = False
    is_outdated: bool = False
    is_lost: bool = False
    cause: KohortError | None = None


class Initialize(Struct, frozen=True):
    """The application wants a producer id."""


class Begin(Struct, frozen=True):
    """The application begins a transaction."""


class Commit(Struct, frozen=True):
    """The application commits the transaction, or resumes a commit."""


class Abort(Struct, frozen=True):
    """The application aborts the transaction, or resumes an abort."""


class Identified(Struct, frozen=True):
    """The coordinator assigned a producer id.

    Attributes:
        identity: The producer id and its epoch.
        has_v2: Whether the cluster has version 2 of transactions.
    """

    identity: Identity
    has_v2: bool


class Touched(Struct, frozen=True):
    """A request is sent that makes the transaction known to the coordinator."""


class Failed(Struct, frozen=True):
    """A part of the transaction was not stored.

    Attributes:
        error: Why.
    """

    error: KohortError


class Refused(Struct, frozen=True):
    """The coordinator refuses to commit: the transaction must be aborted (KIP-890).

    Attributes:
        error: The coordinator's error.
    """

    error: KohortError


class Outdated(Struct, frozen=True):
    """The coordinator refuses to end a transaction with this epoch.

    Attributes:
        error: The coordinator's error.
    """

    error: KohortError


class Settled(Struct, frozen=True):
    """The outcome of all records is known."""


class Ended(Struct, frozen=True):
    """The coordinator has committed or aborted.

    Attributes:
        identity: The producer's new identity (KIP-890); None if unchanged.
        is_unsure: Whether an earlier EndTxn got no answer.
    """

    identity: Identity | None = None
    is_unsure: bool = False


class Interrupted(Struct, frozen=True):
    """The call ended before its step was done: it timed out or was cancelled."""


class Doomed(Struct, frozen=True):
    """The producer cannot continue.

    Attributes:
        error: Why.
    """

    error: KohortError


class TransactionDecision:
    """The working state of a handler.

    Args:
        session: The session before the decision.

    Attributes:
        session: The session after the decision.
        step: The next step.
    """

    def __init__(self, session: TransactionSession) -> None:
        self.session = session
        self.step = Step.NONE

    @property
    def state(self) -> TransactionState:
        """The state after the decision."""
        return self.session.state

    def go(self, state: TransactionState, step: Step = Step.NONE) -> None:
        """Enter a state, and request a step."""
        self.session = replace(self.session, state=state)
        self.step = step


S = TransactionState
OPEN = (S.IN_TRANSACTION, S.COMMITTING, S.ABORTABLE_ERROR)
ENDING = (S.COMMITTING, S.ABORTING, S.ABORTABLE_ERROR)
# The broker does not know the transaction: the epoch has changed, or it has ended.
OUTDATED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)


def identify(decision: TransactionDecision, _event: Initialize) -> None:
    """Ask for a producer id; this fences other producers with the same transactional id."""
    decision.go(S.INITIALIZING, Step.IDENTIFY)


def take_identity(decision: TransactionDecision, event: Identified) -> None:
    """Be ready for a transaction."""
    decision.session = TransactionSession(
        state=S.READY, identity=event.identity, has_v2=event.has_v2
    )


def take_back(decision: TransactionDecision, _event: Interrupted) -> None:
    """Start over with the next call."""
    decision.go(S.UNINITIALIZED)


def begin(decision: TransactionDecision, _event: Begin) -> None:
    """Open a transaction; the coordinator learns of it with its first partition."""
    decision.go(S.IN_TRANSACTION)


def note_start(decision: TransactionDecision, _event: Touched) -> None:
    """Note that the coordinator knows of the transaction from now on."""
    decision.session = replace(decision.session, is_started=True)


def fail(decision: TransactionDecision, event: Failed | Refused) -> None:
    """Keep the first cause."""
    error = event.error
    outdated = isinstance(error, KafkaError) and error.code in OUTDATED
    decision.session = replace(decision.session, is_sent=False, is_outdated=outdated, cause=error)
    decision.go(S.ABORTABLE_ERROR)


def flush(decision: TransactionDecision, _event: Commit) -> None:
    """Wait for the records first."""
    decision.go(S.COMMITTING, Step.FLUSH)


def reopen(decision: TransactionDecision, _event: Interrupted) -> None:
    """Return to the open transaction: nothing was requested from the coordinator."""
    decision.go(S.IN_TRANSACTION)


def is_revocable(decision: TransactionDecision, _event: object) -> bool:
    """Whether the request to commit has not been sent."""
    return not (decision.session.is_sent or decision.session.has_ended)


def note_doubt(decision: TransactionDecision, _event: Interrupted) -> None:
    """Note that the request may still arrive."""
    decision.session = replace(decision.session, is_unsure=True)


def is_empty(decision: TransactionDecision, _event: Settled) -> bool:
    """Whether the coordinator knows of no transaction to end."""
    return not decision.session.is_started


def leave(decision: TransactionDecision, _event: Settled) -> None:
    """Be ready again: the transaction was empty."""
    finish(decision, decision.session.identity)


def commit(decision: TransactionDecision, _event: Settled) -> None:
    """Ask the coordinator to commit."""
    decision.session = replace(decision.session, is_sent=True)
    decision.go(S.COMMITTING, Step.COMMIT)


def has_ended(decision: TransactionDecision, _event: object) -> bool:
    """Whether only the next epoch is missing."""
    return decision.session.has_ended


def renew(decision: TransactionDecision, _event: object) -> None:
    """Ask for the next epoch."""
    decision.go(decision.state, Step.RENEW)


def commit_again(decision: TransactionDecision, _event: Commit) -> None:
    """Ask the coordinator to commit again; its answer shows whether it had."""
    decision.go(S.COMMITTING, Step.COMMIT)


def drop(decision: TransactionDecision, _event: object) -> None:
    """Send no more records of the transaction."""
    decision.go(S.ABORTING, Step.DROP)


def find_out(decision: TransactionDecision, _event: object) -> None:
    """Find out whether the producer is fenced, once none of its records are in flight."""
    decision.go(S.ABORTABLE_ERROR, Step.DROP)


def is_outdated(decision: TransactionDecision, _event: object) -> bool:
    """Whether the broker has refused the epoch."""
    return decision.session.is_outdated


def abort(decision: TransactionDecision, _event: Settled) -> None:
    """Ask the coordinator to abort; after a refused epoch, its answer shows a fenced producer."""
    decision.session = replace(decision.session, is_sent=True)
    decision.go(decision.state, Step.ABORT)


def needs_epoch(decision: TransactionDecision, event: Ended) -> bool:
    """Whether the next epoch has to be requested (KIP-360)."""
    if decision.session.has_v2:
        return False
    doubtful = event.is_unsure or decision.session.is_unsure
    return decision.state is not S.COMMITTING or doubtful


def end_epoch(decision: TransactionDecision, _event: Ended) -> None:
    """End the transaction with a new epoch: late requests must not affect the next one."""
    decision.session = replace(decision.session, has_ended=True)
    decision.go(decision.state, Step.RENEW)


def end(decision: TransactionDecision, event: Ended) -> None:
    """Be ready for the next transaction."""
    finish(decision, event.identity or decision.session.identity)


def finish(decision: TransactionDecision, identity: Identity | None) -> None:
    """Forget the transaction."""
    decision.session = TransactionSession(
        state=S.READY, identity=identity, has_v2=decision.session.has_v2
    )


def doubt(decision: TransactionDecision, event: Outdated) -> None:
    """Ask for the next epoch, which a fenced producer does not get (KIP-588)."""
    cause = decision.session.cause or event.error
    decision.session = replace(decision.session, is_outdated=True, cause=cause)
    decision.go(decision.state, Step.RENEW)


def lose(decision: TransactionDecision, event: Identified) -> None:
    """Note that the broker has aborted the transaction on its own: the producer is not fenced."""
    _lose(decision, event.identity, event.has_v2)


def lose_at_end(decision: TransactionDecision, event: Ended) -> None:
    """Like `lose`; the answer to an abort has shown it."""
    _lose(decision, event.identity or decision.session.identity, decision.session.has_v2)


def _lose(decision: TransactionDecision, identity: Identity | None, has_v2: bool) -> None:
    decision.session = TransactionSession(
        state=S.ABORTABLE_ERROR,
        identity=identity,
        has_v2=has_v2,
        is_lost=True,
        cause=decision.session.cause,
    )


def die(decision: TransactionDecision, event: Doomed) -> None:
    """Fail permanently: this producer can do nothing more."""
    decision.session = replace(decision.session, cause=event.error)
    decision.go(S.FATAL_ERROR)


def ignore(_decision: TransactionDecision, _event: object) -> None:
    """Ignore an event that no longer matters."""


_LIVE = tuple(state for state in S if state is not S.FATAL_ERROR)


def _others(*states: TransactionState) -> tuple[TransactionState, ...]:
    return tuple(state for state in S if state not in states)


ROWS: tuple[Row[TransactionState, TransactionDecision], ...] = (
    row(S.UNINITIALIZED, Initialize, identify, to=S.INITIALIZING, rule="KIP-98"),
    row(S.INITIALIZING, Identified, take_identity, to=S.READY, rule="KIP-98"),
    row(S.INITIALIZING, Interrupted, take_back, to=S.UNINITIALIZED),
    row(S.READY, Begin, begin, to=S.IN_TRANSACTION),
    row(OPEN, Touched, note_start),
    row(S.IN_TRANSACTION, Failed, fail, to=S.ABORTABLE_ERROR),
    row(S.COMMITTING, Failed, fail, when=is_revocable, to=S.ABORTABLE_ERROR),
    row(S.COMMITTING, Refused, fail, to=S.ABORTABLE_ERROR, rule="KIP-890"),
    # commit
    row(S.IN_TRANSACTION, Commit, flush, to=S.COMMITTING),
    row(S.COMMITTING, Interrupted, reopen, when=is_revocable, to=S.IN_TRANSACTION),
    row((S.COMMITTING, S.ABORTING), Interrupted, note_doubt),
    row(S.COMMITTING, Settled, leave, when=is_empty, to=S.READY),
    row(S.COMMITTING, Settled, commit),
    row(S.COMMITTING, Commit, renew, when=has_ended),
    row(S.COMMITTING, Commit, commit_again),
    row(S.ABORTABLE_ERROR, Commit, find_out, when=is_outdated, rule="KIP-588"),
    row(S.ABORTABLE_ERROR, Commit, ignore),
    # abort
    row((S.IN_TRANSACTION, S.ABORTABLE_ERROR), Abort, drop, to=S.ABORTING),
    row(S.ABORTING, Abort, renew, when=has_ended),
    row(S.ABORTING, Abort, drop),
    row((S.ABORTING, S.ABORTABLE_ERROR), Settled, abort, when=is_outdated),
    row(S.ABORTING, Settled, leave, when=is_empty, to=S.READY),
    row(S.ABORTING, Settled, abort),
    # end of the transaction
    row(ENDING, Ended, end_epoch, when=needs_epoch, rule="KIP-360"),
    row(S.ABORTABLE_ERROR, Ended, lose_at_end, rule="KIP-890"),
    row((S.COMMITTING, S.ABORTING), Ended, end, to=S.READY, rule="KIP-890"),
    row(ENDING, Outdated, doubt, rule="KIP-588"),
    row(S.COMMITTING, Identified, lose, when=is_outdated, to=S.ABORTABLE_ERROR, rule="KIP-588"),
    row(S.ABORTABLE_ERROR, Identified, lose),
    row((S.COMMITTING, S.ABORTING), Identified, take_identity, to=S.READY, rule="KIP-360"),
    row(_LIVE, Doomed, die, to=S.FATAL_ERROR),
    # late events
    row(S.FATAL_ERROR, Doomed, ignore),
    row(_others(S.INITIALIZING, S.COMMITTING, S.ABORTING, S.ABORTABLE_ERROR), Identified, ignore),
    row(_others(*OPEN), Touched, ignore),
    row(_others(S.IN_TRANSACTION), Failed, ignore),
    row(_others(S.COMMITTING), Refused, ignore),
    row(_others(S.INITIALIZING, S.COMMITTING, S.ABORTING), Interrupted, ignore),
    row(_others(S.COMMITTING, S.ABORTING), Settled, ignore),
    row(_others(*ENDING), Ended, ignore),
    row(_others(*ENDING), Outdated, ignore),
)

TRANSACTION = Table(
    "transaction of a producer",
    TransactionState,
    ROWS,
    total=(Identified, Touched, Failed, Refused, Outdated, Settled, Ended, Interrupted, Doomed),
    local=(Initialize, Begin, Commit, Abort),
)


class TransactionMachine:
    """The state machine of one transactional producer.

    Attributes:
        session: The current session.
    """

    def __init__(self) -> None:
        self.session = TransactionSession()

    def decide(self, event: object) -> TransactionDecision:
        """Return the decision for an event; changes nothing.

        Raises:
            LocalProtocolError: The call is not allowed in this state.
        """
        decision = TransactionDecision(self.session)
        TRANSACTION.run(decision, type(event), event)
        return decision

    def install(self, session: TransactionSession) -> None:
        """Install the session of a decision."""
        self.session = session
