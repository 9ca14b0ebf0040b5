"""Requests about several items, whose errors become one exception."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from kohort.client.net.backoff import Deadline
from kohort.client.net.cluster import Cluster
from kohort.errors import (
    MAY_BE_HIDDEN,
    BrokerUnavailableError,
    ErrorCode,
    KafkaError,
    KohortError,
    PartialFailureError,
    told_by_server,
    with_right,
)
from kohort.wire.codec.schema import Message, Request

T = TypeVar("T")
R = TypeVar("R")
Answer = TypeVar("Answer", bound=Message)


# Error codes for an operation that is already done.
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
    """Return the error for a code; None for success.

    Args:
        code: The code.
        name: Name of the item.
        message: The broker's message.
        lost: Why an earlier attempt of the same call got no answer: it may have succeeded.
        needs: The operation for which the user needs permission.
    """
    if not code:
        return None
    said = told_by_server(message)
    if not said and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        said = f"it does not exist, {MAY_BE_HIDDEN}"
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
    """Raise the error for a code, if any; arguments as in `error_of`.

    Raises:
        KafkaError: The code is an error.
    """
    error = error_of(code, name, message, needs=needs)
    if error is not None:
        raise error


def check_each(results: Mapping[T, KafkaError | None]) -> None:
    """Raise one error for all failed items.

    Raises:
        PartialFailureError: At least one failed.
    """
    errors: dict[object, KafkaError] = {item: e for item, e in results.items() if e is not None}
    if errors:
        raise PartialFailureError(errors)


async def ask_apart(
    items: Iterable[T], ask: Callable[[T, Deadline], Awaitable[R]], deadline: Deadline
) -> dict[T, R | KohortError]:
    """Ask for several items concurrently; return the answer or error of each.

    Args:
        items: The items.
        ask: Asks for one item, until a deadline.
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
    """Return the results of several items, or raise one error that includes them.

    Raises:
        PartialFailureError: At least one failed; the error has the results of the others.
        KohortError: The brokers answered for none of them; it is the error of the first.
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
    """Whether an error is not an answer of a broker, so that its code adds nothing to its type."""
    return type(error) is not KafkaError and not isinstance(error, PartialFailureError)


def as_kafka_error(error: KohortError) -> KafkaError:
    """Return the error as a Kafka error: garbled bytes count as a lost connection."""
    if isinstance(error, KafkaError):
        return error
    changed = BrokerUnavailableError(str(error))
    changed.__cause__ = error
    return changed


def lacking(name: str) -> KafkaError:
    """Return the error of an item that is missing from an answer."""
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name}: missing from the answer")


async def ask_broker(
    cluster: Cluster, node: int, request: Request[Answer], deadline: Deadline
) -> Answer:
    """Send a request to one broker until it answers.

    Args:
        cluster: The brokers.
        node: Node id of the broker.
        request: The request, which must be safe to repeat.
        deadline: When to give up.

    Raises:
        KafkaError: The broker is unknown, or time is up; the cause is the last error.
    """
    pause = cluster.retry_backoff()
    async with cluster.within(deadline, f"{type(request).__name__} to broker {node}"):
        while True:
            timeout_ms = max(1, deadline.left_ms(cluster.config.request_timeout_ms))
            try:
                return await cluster.send(node, request, timeout_ms=timeout_ms)
            except KohortError as error:
                if node not in cluster.metadata.nodes:
                    raise
                await cluster.wait_after(error, pause, deadline)
