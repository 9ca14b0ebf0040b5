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

# Not the interpreter's own: an application that seeds that one gets its numbers undisturbed.
CHANCE = random.SystemRandom()


class NeverABrokerError(RemoteProtocolError):
    """No server has ever answered as a broker does: an address is wrong, so waiting is no use."""


def may_pass(error: BaseException) -> bool:
    """Whether a request may succeed when it is sent again, over another connection if need be.

    Bytes that are not Kafka's protocol end the connection, like an end of it: a load balancer
    answers for a broker that restarts, or a network has garbled an answer.
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
    """Whether a right is missing: the same request succeeds once an operator has granted it."""
    return isinstance(error, KafkaError) and error.code in _NOT_AUTHORIZED


def needs_help(error: BaseException) -> bool:
    """Whether retrying is useless: an operator has to grant a right, or to decide.

    Codes that a client does not know, or knows of no answer to this request, may be gone the next
    time: a newer broker, or a bit that flipped on the way.
    """
    if isinstance(error, AuthenticationError):
        return True
    if isinstance(error, KafkaError):
        return is_denied(error) or error.code == ErrorCode.UNSUPPORTED_VERSION
    return not may_pass(error)


class Backoff:
    """Growing pauses: each twice the last one, up to a limit, with a jitter of a fifth (KIP-580).

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
        """Return the pause after so many attempts, in milliseconds."""
        pause: int = min(self._first_ms * 2 ** (min(attempts, 30) - 1), self._max_ms)
        return pause * CHANCE.uniform(1 - JITTER, 1 + JITTER)

    def reset(self) -> None:
        """Begin with the first pause again."""
        self._attempts = 0


class Deadline:
    """A point in time until which a call may take, and what has kept the call so far.

    Args:
        timeout_ms: Time from now; None for no end.

    Attributes:
        what: What the call wants, for people; its caller names it.
        cause: The last error that kept it from being done.
        lost: Why an earlier attempt of its present request got no answer; None when none was lost.
    """

    def __init__(self, timeout_ms: float | None) -> None:
        self.what: str | None = None
        self.cause: KohortError | None = None
        self.lost: KohortError | None = None
        self._timeout_ms = timeout_ms
        self._end = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000

    def beside(self) -> Deadline:
        """Return the same point in time for one of several parts of a call that run together."""
        part = Deadline(self._timeout_ms)
        part._end = self._end
        return part

    @property
    def timeout_s(self) -> float | None:
        """How many seconds the call may take in all; None when there is no end."""
        return None if self._timeout_ms is None else self._timeout_ms / 1000

    def left_s(self) -> float | None:
        """Return the seconds left, never negative; None when there is no end."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def left_ms(self, at_most: int) -> int:
        """Return the milliseconds left, at most `at_most`."""
        left = self.left_s()
        return at_most if left is None else min(at_most, int(left * 1000))

    @property
    def over(self) -> bool:
        """Whether it has passed."""
        return self._end is not None and time.monotonic() >= self._end

    def note(self, error: KohortError | None) -> None:
        """Remember what went wrong last.

        The last request may be cut off by the end of the call itself: what a broker said before
        tells more than that.
        """
        if error is not None and not (self.cause and isinstance(error, RequestTimedOutError)):
            self.cause = error

    def expired(self, waited_for: str = "") -> KafkaError:
        """Return the error of a call that took too long: its cause says what kept it.

        Args:
            waited_for: What was still to be done, if nothing has failed.
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
