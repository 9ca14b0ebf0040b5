"""What an answer about several things says of each, as one exception."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from kohort.errors import ErrorCode, KafkaError, KohortError, PartialFailureError

T = TypeVar("T")


# What a broker says of something that is done already.
_ALREADY: Final = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)


def error_of(
    code: int, name: str, message: str | None, lost: KohortError | None = None
) -> KafkaError | None:
    """Return the error that a code stands for; None for none.

    Args:
        code: The code.
        name: What it is said of.
        message: What the broker says.
        lost: Why an earlier attempt of the same call got no answer: it may have succeeded.
    """
    if not code:
        return None
    text = f"{name}: {message}" if message else name
    if lost is None or code not in _ALREADY:
        return KafkaError(code, text)
    error = KafkaError(
        code,
        f"{text}; an earlier attempt of this call may have done it, its answer was lost ({lost})",
    )
    error.__cause__ = lost
    return error


def check(code: int, name: str, message: str | None) -> None:
    """Raise the error that a code stands for, if it does.

    Raises:
        KafkaError: It does.
    """
    error = error_of(code, name, message)
    if error is not None:
        raise error


def check_each(results: Mapping[T, KafkaError | None]) -> None:
    """Raise one error for all that failed.

    Raises:
        PartialFailureError: At least one failed.
    """
    errors: dict[object, KafkaError] = {item: e for item, e in results.items() if e is not None}
    if errors:
        raise PartialFailureError(errors)
