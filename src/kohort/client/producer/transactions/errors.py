"""Errors of transactions, each with what to do: abort, retry, or give up."""

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

# The allowed call in each state, and the error of `send`; other states accept records.
_ALLOWED: Mapping[TransactionState, str] = {
    S.UNINITIALIZED: "no transaction is open: call begin_transaction first",
    S.INITIALIZING: "no transaction is open: init_transactions or begin_transaction still runs",
    S.READY: "no transaction is open: call begin_transaction",
    S.COMMITTING: "the transaction is being committed: if commit_transaction has raised, call it"
    " again",
    S.ABORTING: "the transaction is being aborted: if abort_transaction has raised, call it again",
}
# The same for states where `send` is allowed, or has another error.
_NOT_AGAIN: Mapping[TransactionState, str] = {
    S.IN_TRANSACTION: "a transaction is open: commit or abort it first",
    S.ABORTABLE_ERROR: "the open transaction has failed: call abort_transaction first",
}
# Advice after a call that timed out.
_AGAIN: Mapping[TransactionState, str] = {
    S.UNINITIALIZED: "call it again",
    S.READY: "call it again",
    S.IN_TRANSACTION: "the transaction is still open: call commit_transaction again, or"
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
    """Return why records are not accepted now; None when they are."""
    if session.state is S.ABORTABLE_ERROR:
        return abortable(transactional_id, session)
    if session.state is S.FATAL_ERROR:
        return session.cause
    said = _ALLOWED.get(session.state)
    return None if said is None else LocalProtocolError(f"{_named(transactional_id)}: {said}")


def not_allowed(transactional_id: str, session: TransactionSession, call: str) -> KohortError:
    """Return the error of a call that the current state does not allow."""
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
            "the broker has aborted it, as it does when a transaction is open for longer than"
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
    """Return the error of a transaction whose call was interrupted."""
    return LocalProtocolError(f"{call} of {_named(transactional_id)} was interrupted")


def fenced(
    transactional_id: str, session: TransactionSession, error: KafkaError
) -> ProducerFencedError:
    """Return the error of a producer that another one has fenced."""
    who = f"another producer with {_named(transactional_id)} has taken over"
    if not session.has_v2:  # such a broker does not tell the two apart
        who += ", or the transaction was open for longer than transaction.timeout.ms"
    fate = "the broker has aborted the open transaction"
    if session.state is S.COMMITTING and session.is_unsure:
        fate = "it is not known whether the last transaction was committed"
    made = ProducerFencedError(
        f"{who}; {fate} ({error}). Close this producer; two programs must not use one"
        " transactional.id at the same time",
        error.code,
    )
    made.__cause__ = error
    return made


def final(transactional_id: str, error: KafkaError, doubt: str = "") -> KafkaError:
    """Return the error of a producer that cannot continue for another reason."""
    made = KafkaError(
        error.code,
        f"{error.message}: the producer with {_named(transactional_id)} cannot continue{doubt}."
        " Close it and create a new one, which aborts an open transaction",
    )
    made.fatal, made.retriable = True, False
    made.__cause__ = error
    return made


def forgotten(transactional_id: str, error: KafkaError) -> KafkaError:
    """Return the error of a commit without an answer whose producer has expired."""
    doubt = (
        ", and it is not known whether its last transaction was committed: since the request to"
        " commit it, the coordinator has expired the producer (transactional.id.expiration.ms)"
    )
    return final(transactional_id, error, doubt)


def again(error: KafkaError, session: TransactionSession) -> KafkaError:
    """Return the error of a call that timed out, with advice."""
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
    """Return why the coordinator assigned no producer id."""
    where = _named(transactional_id)
    if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return KafkaError(
            code,
            f"{where}: transaction.timeout.ms is {timeout_ms}, more than the broker's"
            " transaction.max.timeout.ms: set a lower one",
        )
    if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return KafkaError(code, f"{where} may not be used: the user needs permission to WRITE it")
    return KafkaError(code, where)


def offsets_refused(group: ConsumerGroupMetadata, code: int, where: str) -> KafkaError:
    """Return why the coordinator of a group rejects offsets (KIP-447)."""
    if code not in _FENCED_MEMBER:
        return KafkaError(code, f"offsets of group {group.group_id}: {where}")
    return CommitFailedError(
        code,
        f"group {group.group_id} takes no offsets from member {group.member_id or '(none)'} of"
        f" generation {group.generation_id}: the partitions may now belong to another member."
        " Abort the transaction, poll, and process the records read then",
    )


def _named(transactional_id: str) -> str:
    return f"transactional id {transactional_id}"
