"""Broker errors that an instance survives, and retrying requests until brokers answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kohort.client.net.backoff import may_pass
from kohort.errors import ErrorCode, KafkaError, KohortError

log = logging.getLogger("kohort.streams")

AGAIN_S = 0.5
"""The delay before the next attempt; the client itself has already retried for a while."""
_KNOWN = frozenset(ErrorCode)
# Waiting does not bring back a deleted or recreated topic.
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

T = TypeVar("T")


def may_go_on(error: BaseException) -> bool:
    """Whether to retry: after such an error, the client continues by itself.

    It reports garbled bytes, internal broker errors and unknown codes once, and fetches again.
    """
    if not isinstance(error, KafkaError):
        return may_pass(error)
    if error.fatal or error.code in _GONE:
        return False
    is_odd = error.code == ErrorCode.UNKNOWN_SERVER_ERROR or error.code not in _KNOWN
    return is_odd or may_pass(error)


async def answered(what: str, ask: Callable[[], Awaitable[T]]) -> T:
    """Retry a request until brokers answer; log each failure.

    Args:
        what: The part that waits for the answer, for the log.
        ask: Sends one request.

    Raises:
        Exception: Retrying would not help.
    """
    while True:
        try:
            return await ask()
        except KohortError as error:
            if not may_go_on(error):
                raise
            log.warning("%s waits for brokers: %s; retrying", what, error)
        await asyncio.sleep(AGAIN_S)
