"""Kafka's error codes, and the exceptions of this package.

Three families, by the side at fault:

* `RemoteProtocolError`: the peer sent bytes that violate Kafka's protocol.
* `LocalProtocolError`: the caller asked for something that the protocol does not allow now.
* `KafkaError`: the peer sent a well-formed answer with one of Kafka's error codes.

Any other exception from this package is a bug.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kohort.types import TopicPartition


class ErrorCode(IntEnum):
    """Kafka's error codes by their protocol names; a peer may send other codes."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed if it is sent again."""
        return self in _RETRIABLE


_RETRIABLE = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)

# Errors after which a consumer or producer object cannot be used any longer.
_FATAL = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, or `UNKNOWN_CODE_<n>` for an unknown one."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"UNKNOWN_CODE_{code}"


class Portable(BaseException):
    """An exception that survives `pickle` and `copy`, whatever its constructor's arguments are.

    Python recreates an exception from `args`, which `str` shows and which seldom are the
    constructor's arguments. Here attributes and notes are copied unchanged, and so is a cause from
    this package: another cause may refuse to be pickled, and is not needed to read the message.
    """

    def __reduce__(self) -> tuple[object, ...]:
        """Return the parts of an equal exception, made without calling its constructor."""
        state = dict(self.__dict__)
        if isinstance(self.__cause__, Portable):
            state["__cause__"] = self.__cause__
        return _made_again, (type(self), self.args), state


def _made_again(kind: type[Portable], args: tuple[object, ...]) -> Portable:
    return kind.__new__(kind, *args)


class KohortError(Portable, Exception):
    """Base class of all exceptions that this package raises on purpose."""


class ProtocolError(KohortError):
    """The protocol was violated; the two subclasses tell by whom."""


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that violate Kafka's protocol, or exceed a limit."""


class LocalProtocolError(ProtocolError):
    """The caller asked for something that the protocol does not allow in the current state."""


class RecordDeserializationError(KohortError):
    """A deserializer raised; other partitions continue, this one waits at the record.

    `seek(partition, offset + 1)` skips the record. The `__cause__` is the deserializer's exception.

    Attributes:
        part: The part that could not be deserialized, "key" or "value".
        partition: Partition of the record.
        offset: Its offset.
        key: Its key as bytes, None when there is none.
        value: Its value as bytes, None when there is none.
        reason: The deserializer's error.
    """

    def __init__(
        self,
        part: str,
        partition: TopicPartition,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        reason: str,
    ) -> None:
        """Create the error for one record."""
        self.part = part
        self.partition = partition
        self.offset = offset
        self.key = key
        self.value = value
        self.reason = reason
        super().__init__(part, partition, offset, key, value, reason)

    def __str__(self) -> str:
        """Return what failed, where, and how to continue."""
        where = f"{self.partition.topic}-{self.partition.partition}"
        return (
            f"{where} at offset {self.offset}: the {self.part} cannot be deserialized"
            f" ({self.reason}); seek to offset {self.offset + 1} to skip the record"
        )


class ConfigError(KohortError, ValueError):
    """A setting is unknown, malformed, or contradicts another setting."""


class KafkaError(KohortError):
    """A Kafka error code as an exception.

    Attributes:
        code: The numeric error code; it may be one that `ErrorCode` does not list.
        name: Kafka's name of the code.
        message: A description of the error; the name if nothing more is known.
        retriable: Whether the same request may succeed when sent again.
        fatal: Whether the object that raised it cannot be used any longer.
    """

    def __init__(self, code: int, message: str = "") -> None:
        """Make the error for `code` (an `ErrorCode` or a number from an answer)."""
        self.code = int(code)
        self.name = error_name(self.code)
        self.message = message or self.name
        self.retriable = self.code in _RETRIABLE
        self.fatal = self.code in _FATAL
        super().__init__(f"{self.name}: {message}" if message else self.name)


# The kind of resource for each code of a missing permission.
_DENIED: Mapping[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
}


def with_right(code: int, text: str, operation: str, *, creates: bool = False) -> str:
    """Return the text of an error; for a missing permission, it says which one.

    Args:
        code: The error's code.
        text: The subject of the error.
        operation: The operation that an ACL must allow, by Kafka's name.
        creates: Whether the request creates a missing topic, which may be refused with the same
            code.
    """
    kind = _DENIED.get(code)
    if kind is None:
        return text
    more = " (if it does not exist: also to CREATE it)" if creates and kind == "topic" else ""
    return f"{text}: allow the client's user to {operation} this {kind}{more}"


# Brokers show a topic only to users who may DESCRIBE it; for others it does not seem to exist.
MAY_BE_HIDDEN = "or the client's user may not DESCRIBE it"

_LONGEST_MESSAGE = 1_000


def error_text(error: BaseException | None) -> str:
    """Return the text of an error, or the name of its type if it is empty (`TimeoutError()`)."""
    return str(error) or type(error).__name__


def clipped(message: str | None) -> str | None:
    """Return a message short enough for an answer: a name in it may be 32 KiB long."""
    return message if message is None else message[:_LONGEST_MESSAGE]


def told_by_server(message: str | None) -> str:
    """Return a server's message in a form for logs and errors: on one line, and not too long.

    Args:
        message: The message, with any length and characters; None for none.
    """
    shown = clipped(message) or ""
    if shown != message and message:
        shown += "..."
    if shown.isprintable():
        return shown
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in shown
    )


class BrokerUnavailableError(KafkaError):
    """No broker could be reached in time; the message names addresses and causes."""

    def __init__(self, message: str) -> None:
        """Make the error with a message that names the tried addresses and why they failed."""
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class AuthenticationError(KafkaError):
    """This client and the cluster do not accept each other: SASL or TLS has failed.

    It is fatal: the client does not reconnect, because each attempt counts towards the account's
    limit of failed logins. Correct the settings and create a new client.
    """

    def __init__(self, code: int, message: str = "") -> None:
        """Make the error for `code`, with a message that says which side refused, and why."""
        super().__init__(code, message)
        self.retriable = False
        self.fatal = True


class TlsError(AuthenticationError):
    """TLS has failed: a certificate was not accepted, or there is no common version or cipher.

    Kafka has no error code for this: `code` is UNKNOWN_SERVER_ERROR, as in Java's clients.
    """

    def __init__(self, message: str) -> None:
        """Create the error; the message names the address and what was not accepted."""
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        self.name = "TLS_FAILED"
        self.args = (f"{self.name}: {message}",)


class RequestTimedOutError(KafkaError):
    """A request, or a call that consists of several, got no answer in time."""

    def __init__(self, message: str) -> None:
        """Make the error with a message that names the awaited result."""
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class PartialFailureError(KafkaError):
    """A call succeeded for some of several items and failed for others.

    It has the code of the first failed item.

    Attributes:
        errors: The error of each failed item: by topic, group, partition, or broker id.
        results: The results of the other items, by the same keys; often empty.
    """

    def __init__(
        self, errors: Mapping[object, KafkaError], results: Mapping[object, object] | None = None
    ) -> None:
        """Make the error from at least one failed item."""
        self.errors = dict(errors)
        self.results = dict(results or {})
        first = next(iter(self.errors.values()))
        more = len(self.errors) - 1
        message = str(first).removeprefix(f"{first.name}: ")
        super().__init__(first.code, f"{message} (and {more} more)" if more else message)


class AbortableTransactionError(KafkaError):
    """The open transaction can no longer be committed: abort it, then begin another.

    Its `__cause__` is the first error of the transaction, and its code is that error's code. It is
    not retriable, whatever the code: only an abort helps.
    """

    def __init__(self, code: int, message: str = "") -> None:
        """Make the error for `code`, with a message that names transactional id and cause."""
        super().__init__(code, message)
        self.retriable = False


class ProducerFencedError(KafkaError):
    """Another producer with the same transactional id has taken over: this one cannot continue.

    Its open transaction is aborted. Close it; do not start again with this id while the other
    producer is running, or the two will keep fencing each other.
    """

    def __init__(self, message: str, code: int = ErrorCode.PRODUCER_FENCED) -> None:
        """Create the error; the message names the transactional id."""
        super().__init__(code, message)
        self.fatal = True


class CommitFailedError(KafkaError):
    """The group has rebalanced; the partitions of this commit may belong to another member now."""


class RebalanceInProgressError(KafkaError):
    """The commit arrived during a rebalance: poll, then commit again."""

    def __init__(self, message: str = "") -> None:
        """Create the error."""
        super().__init__(ErrorCode.REBALANCE_IN_PROGRESS, message)
