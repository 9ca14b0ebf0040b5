"""How long to wait before trying again, and how long to go on trying."""

from __future__ import annotations

import random
import time

from kohort.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ErrorCode,
    KafkaError,
    KohortError,
    RemoteProtocolError,
    RequestTimedOutError,
)

JITTER = 0.2

# Not the shared generator of `random`: an application may seed that one and rely on its sequence.
CHANCE = random.SystemRandom()


class NeverABrokerError(RemoteProtocolError):
    """No server has ever answered like a broker: an address is wrong, so waiting does not help."""


def may_pass(error: BaseException) -> bool:
    """Whether a request may succeed when it is sent again, over another connection if necessary.

    Bytes that are not Kafka's protocol count like a lost connection: a load balancer may answer for
    a broker that restarts, or the network may have garbled an answer.
    """
    if isinstance(error, RemoteProtocolError):
        return not isinstance(error, NeverABrokerError)
    return isinstance(error, KafkaError) and error.retriable


_NOT_AUTHORIZED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


def is_denied(error: BaseException) -> bool:
    """Whether a permission is missing: the request succeeds once an operator has granted it."""
    return isinstance(error, KafkaError) and error.code in _NOT_AUTHORIZED


def needs_help(error: BaseException) -> bool:
    """Whether retrying is useless: an operator has to grant a permission or make a decision.

    Error codes that the client does not know, or does not expect here, may not occur again: they
    come from a newer broker, or from a bit that flipped in transit.
    """
    if isinstance(error, AuthenticationError):
        return True
    if isinstance(error, KafkaError):
        return is_denied(error) or error.code == ErrorCode.UNSUPPORTED_VERSION
    return not may_pass(error)


class Backoff:
    """Growing pauses: each twice as long as the last, up to a limit, with 20 % jitter (KIP-580).

    Args:
        first_ms: The first pause.
        max_ms: The longest one.
    """

    def __init__(self, first_ms: int, max_ms: int) -> None:
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._attempts = 0

    def next_s(self) -> float:
        """Return the next pause, in seconds."""
        self._attempts = min(self._attempts + 1, 30)
        return self.after_ms(self._attempts) / 1000

    def after_ms(self, attempts: int) -> float:
        """Return the pause after this number of attempts, in milliseconds."""
        pause: int = min(self._first_ms * 2 ** (min(attempts, 30) - 1), self._max_ms)
        return pause * CHANCE.uniform(1 - JITTER, 1 + JITTER)

    def reset(self) -> None:
        """Start over with the first pause."""
        self._attempts = 0


class Deadline:
    """The time by which a call must finish, and the last error that delayed it.

    Args:
        timeout_ms: Time from now; None for no limit.

    Attributes:
        what: Name of the operation, for messages; set by the caller.
        cause: The last error that kept the call from finishing.
        lost: Why an earlier attempt of the current request got no answer; None when none was lost.
    """

    def __init__(self, timeout_ms: float | None) -> None:
        self.what: str | None = None
        self.cause: KohortError | None = None
        self.lost: KohortError | None = None
        self._timeout_ms = timeout_ms
        self._end = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000

    def beside(self) -> Deadline:
        """Return a copy with the same end, for one of several concurrent parts of a call."""
        part = Deadline(self._timeout_ms)
        part._end = self._end
        return part

    @property
    def timeout_s(self) -> float | None:
        """How many seconds the call may take in total; None when there is no limit."""
        return None if self._timeout_ms is None else self._timeout_ms / 1000

    def left_s(self) -> float | None:
        """Return the seconds left, never negative; None when there is no limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def left_ms(self, at_most: int) -> int:
        """Return the milliseconds left, at most `at_most`."""
        left = self.left_s()
        return at_most if left is None else min(at_most, int(left * 1000))

    @property
    def over(self) -> bool:
        """Whether the deadline has passed."""
        return self._end is not None and time.monotonic() >= self._end

    def note(self, error: KohortError | None) -> None:
        """Remember the last error.

        The deadline itself may have cut off the last request: an earlier answer of a broker says
        more about the cause than that timeout.
        """
        if error is not None and not (self.cause and isinstance(error, RequestTimedOutError)):
            self.cause = error

    def expired(self, waited_for: str = "") -> KafkaError:
        """Return the error of a call that took too long; its cause is the last error.

        Args:
            waited_for: What the call was still waiting for, if nothing has failed.
        """
        cause = self.cause
        text = f"{self.what or 'the call'} took longer than {self._timeout_ms or 0:g} ms"
        error: KafkaError
        if cause is None:
            error = RequestTimedOutError(f"{text}: {waited_for}" if waited_for else text)
            cause = RequestTimedOutError(waited_for) if waited_for else None
        elif isinstance(cause, BrokerUnavailableError):
            error = BrokerUnavailableError(f"{text}: {cause.message}")
        else:
            error = RequestTimedOutError(f"{text}; the last error was {cause}")
        error.__cause__ = cause
        return error
