"""What an answer about several things says of each, as one exception."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from kohort.client.net.backoff import Deadline
from kohort.errors import (
    BrokerUnavailableError,
    ErrorCode,
    KafkaError,
    KohortError,
    PartialFailureError,
    told_by_server,
    with_right,
)

T = TypeVar("T")
R = TypeVar("R")


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
    code: int,
    name: str,
    message: str | None,
    lost: KohortError | None = None,
    *,
    needs: str,
) -> KafkaError | None:
    """Return the error that a code stands for; None for none.

    Args:
        code: The code.
        name: What it is said of.
        message: What the broker says.
        lost: Why an earlier attempt of the same call got no answer: it may have succeeded.
        needs: The operation that the user must be allowed.
    """
    if not code:
        return None
    said = told_by_server(message)
    text = with_right(code, f"{name}: {said}" if said else name, needs)
    if lost is None or code not in _ALREADY:
        return KafkaError(code, text)
    error = KafkaError(
        code,
        f"{text}; an earlier attempt of this call may have done it, its answer was lost ({lost})",
    )
    error.__cause__ = lost
    return error


def check(code: int, name: str, message: str | None, *, needs: str) -> None:
    """Raise the error that a code stands for, if it does; arguments as `error_of`.

    Raises:
        KafkaError: It does.
    """
    error = error_of(code, name, message, needs=needs)
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


async def ask_apart(
    items: Iterable[T], ask: Callable[[T, Deadline], Awaitable[R]], deadline: Deadline
) -> dict[T, R | KohortError]:
    """Ask for each of several things at the same time; return its answer, or why there is none.

    Args:
        items: The things.
        ask: Asks for one of them, until a deadline.
        deadline: When to give up.
    """
    wanted = list(dict.fromkeys(items))
    found = await asyncio.gather(
        *(ask(each, deadline.beside()) for each in wanted), return_exceptions=True
    )
    results: dict[T, R | KohortError] = {}
    for item, each in zip(wanted, found, strict=True):
        if isinstance(each, BaseException) and not isinstance(each, KohortError):
            raise each
        results[item] = each
    return results


def check_results(results: Mapping[T, R | KohortError]) -> dict[T, R]:
    """Return the results of several things, or raise one error with those there are.

    Raises:
        PartialFailureError: At least one failed; it has the results of the others.
        KohortError: The brokers said nothing of any of them; it is the error of the first.
    """
    failed = {item: each for item, each in results.items() if isinstance(each, KohortError)}
    good = {item: each for item, each in results.items() if not isinstance(each, KohortError)}
    if failed and not good and all(map(_is_unanswered, failed.values())):
        raise next(iter(failed.values()))
    if failed:
        raise PartialFailureError(
            {item: as_kafka_error(each) for item, each in failed.items()},
            {item: each for item, each in good.items()},  # noqa: C416  # of another type
        )
    return good


def _is_unanswered(error: KohortError) -> bool:
    """Whether it is no broker's word: its code would not say more than its type does."""
    return type(error) is not KafkaError and not isinstance(error, PartialFailureError)


def as_kafka_error(error: KohortError) -> KafkaError:
    """Return the error as one of Kafka's: bytes of no protocol are as if the connection ended."""
    if isinstance(error, KafkaError):
        return error
    changed = BrokerUnavailableError(str(error))
    changed.__cause__ = error
    return changed


def lacking(name: str) -> KafkaError:
    """Return the error of something that an answer leaves out."""
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name}: the answer does not have it")
