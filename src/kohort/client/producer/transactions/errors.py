"""What is wrong with a transaction, and which of three things to do: abort, retry, or give up."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.client.producer.transactions.machine import TransactionSession, TransactionState
from kohort.errors import (
    AbortableTransactionError,
    BrokerUnavailableError,
    CommitFailedError,
    ErrorCode,
    KafkaError,
    KohortError,
    LocalProtocolError,
    ProducerFencedError,
    RequestTimedOutError,
)
from kohort.types import ConsumerGroupMetadata

S = TransactionState

# What may be called in each state, and what `send` says there; in the others it is taken.
_ALLOWED: Mapping[TransactionState, str] = {
    S.UNINITIALIZED: "no transaction is open: call begin_transaction first",
    S.INITIALIZING: "no transaction is open: init_transactions or begin_transaction still runs",
    S.READY: "no transaction is open: call begin_transaction",
    S.COMMITTING: "the transaction is being committed: if commit_transaction has raised, call it"
    " again",
    S.ABORTING: "the transaction is being aborted: if abort_transaction has raised, call it again",
}
# The same where `send` is allowed, or says it otherwise.
_NOT_AGAIN: Mapping[TransactionState, str] = {
    S.IN_TRANSACTION: "a transaction is open: commit or abort it first",
    S.ABORTABLE_ERROR: "the open transaction has failed: call abort_transaction first",
}
# What helps after a call that was not answered in time.
_AGAIN: Mapping[TransactionState, str] = {
    S.UNINITIALIZED: "call it again",
    S.READY: "call it again",
    S.IN_TRANSACTION: "the transaction is open as before: call commit_transaction again, or"
    " abort_transaction",
    S.COMMITTING: "the broker may have committed it: call commit_transaction again, to find out",
    S.ABORTING: "call abort_transaction again",
    S.ABORTABLE_ERROR: "call abort_transaction",
}
_FENCED_MEMBER = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)


def gate(transactional_id: str, session: TransactionSession) -> KohortError | None:
    """Return why records are not taken now; None when they are."""
    if session.state is S.ABORTABLE_ERROR:
        return abortable(transactional_id, session)
    if session.state is S.FATAL_ERROR:
        return session.cause
    said = _ALLOWED.get(session.state)
    return None if said is None else LocalProtocolError(f"{_named(transactional_id)}: {said}")


def not_allowed(transactional_id: str, session: TransactionSession, call: str) -> KohortError:
    """Return the error of a call that the present state does not allow."""
    said = _NOT_AGAIN.get(session.state) or _ALLOWED[session.state]
    return LocalProtocolError(f"{call} of {_named(transactional_id)}: {said}")


def abortable(transactional_id: str, session: TransactionSession) -> AbortableTransactionError:
    """Return the error of a transaction that has failed."""
    cause = session.cause
    assert cause is not None
    code = cause.code if isinstance(cause, KafkaError) else ErrorCode.TRANSACTION_ABORTABLE
    why = str(cause)
    if session.is_lost:
        why = (
            "the broker has aborted it by itself, as it does with one that is open for longer than"
            f" transaction.timeout.ms ({why})"
        )
    error = AbortableTransactionError(
        code,
        f"the transaction of {_named(transactional_id)} cannot be committed: {why}. Call"
        " abort_transaction, then begin another one",
    )
    error.__cause__ = cause
    return error


def dropped(transactional_id: str) -> LocalProtocolError:
    """Return the error of a record that was not sent before its transaction was aborted."""
    return LocalProtocolError(
        f"the transaction of {_named(transactional_id)} is aborted, and the record with it"
    )


def interrupted(transactional_id: str, call: str) -> LocalProtocolError:
    """Return the cause of a transaction whose call was cut off in the middle."""
    return LocalProtocolError(f"{call} of {_named(transactional_id)} was interrupted")


def fenced(
    transactional_id: str, session: TransactionSession, error: KafkaError
) -> ProducerFencedError:
    """Return the error of a producer that another one has shut out."""
    who = f"another producer with {_named(transactional_id)} has taken over"
    if not session.has_v2:  # such a broker does not tell the two apart
        who += ", or the transaction was open for longer than transaction.timeout.ms"
    fate = "the broker has aborted what was open here"
    if session.state is S.COMMITTING and session.is_unsure:
        fate = "whether the last transaction was committed before is not known here"
    made = ProducerFencedError(
        f"{who}; {fate} ({error}). Close this producer; two programs must not use one"
        " transactional.id at the same time",
        error.code,
    )
    made.__cause__ = error
    return made


def final(transactional_id: str, error: KafkaError, doubt: str = "") -> KafkaError:
    """Return the error of a producer that cannot go on for another reason."""
    made = KafkaError(
        error.code,
        f"{error.message}: the producer with {_named(transactional_id)} cannot go on{doubt}. Close"
        " it, and make a new one, which aborts what is open",
    )
    made.fatal, made.retriable = True, False
    made.__cause__ = error
    return made


def forgotten(transactional_id: str, error: KafkaError) -> KafkaError:
    """Return the error of a commit that had no answer until its producer was forgotten."""
    doubt = (
        ", and whether its last transaction was committed is not known here: since the request to"
        " commit it the coordinator has forgotten the producer (transactional.id.expiration.ms)"
    )
    return final(transactional_id, error, doubt)


def again(error: KafkaError, session: TransactionSession) -> KafkaError:
    """Return the error of a call that had no answer in time, with what to do."""
    hint = _AGAIN.get(session.state)
    if hint is None:
        return error
    text = f"{error.message}; {hint}"
    made: KafkaError
    if isinstance(error, BrokerUnavailableError):
        made = BrokerUnavailableError(text)
    elif isinstance(error, RequestTimedOutError):
        made = RequestTimedOutError(text)
    else:
        made = KafkaError(error.code, text)
    made.__cause__ = error.__cause__ or error
    return made


def not_identified(transactional_id: str, timeout_ms: int, code: int) -> KafkaError:
    """Return why the coordinator gave no producer id."""
    where = _named(transactional_id)
    if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return KafkaError(
            code,
            f"{where}: transaction.timeout.ms is {timeout_ms}, more than the broker's"
            " transaction.max.timeout.ms: set a lower one",
        )
    if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return KafkaError(code, f"{where} may not be used: it needs the right to WRITE it")
    return KafkaError(code, where)


def offsets_refused(group: ConsumerGroupMetadata, code: int, where: str) -> KafkaError:
    """Return why the coordinator of a group does not take offsets (KIP-447)."""
    if code not in _FENCED_MEMBER:
        return KafkaError(code, f"offsets of group {group.group_id}: {where}")
    return CommitFailedError(
        code,
        f"group {group.group_id} takes no offsets from member {group.member_id or '(none)'} of"
        f" generation {group.generation_id}: the partitions may belong to another member by now."
        " Abort the transaction, poll, and do again what is read then",
    )


def _named(transactional_id: str) -> str:
    return f"transactional id {transactional_id}"
