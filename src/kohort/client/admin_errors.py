"""What an answer about several things says of each, as one exception."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from kohort.errors import KafkaError, PartialFailureError

T = TypeVar("T")


def error_of(code: int, name: str, message: str | None) -> KafkaError | None:
    """Return the error that a code stands for; None for none."""
    return KafkaError(code, f"{name}: {message}" if message else name) if code else None


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
