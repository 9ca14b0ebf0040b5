"""Errors of brokers that an instance survives, and repeating requests until they answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kohort.client.net.backoff import may_pass
from kohort.errors import ErrorCode, KafkaError, KohortError

log = logging.getLogger("kohort.streams")

AGAIN_S = 0.5
"""The wait before the next try; the client has tried for a while itself."""
_KNOWN = frozenset(ErrorCode)
# A deleted or recreated topic does not come back by itself.
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

T = TypeVar("T")


def may_go_on(error: BaseException) -> bool:
    """Whether to ask again: the client goes on by itself after such an error.

    It reports garbled bytes, internal errors of brokers and unknown codes once, and fetches again.
    """
    if not isinstance(error, KafkaError):
        return may_pass(error)
    if error.fatal or error.code in _GONE:
        return False
    is_odd = error.code == ErrorCode.UNKNOWN_SERVER_ERROR or error.code not in _KNOWN
    return is_odd or may_pass(error)


async def answered(what: str, ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until brokers answer; each failure is logged.

    Args:
        what: The part that waits for the answer, for people.
        ask: Makes one request.

    Raises:
        Exception: Asking again would not help.
    """
    while True:
        try:
            return await ask()
        except KohortError as error:
            if not may_go_on(error):
                raise
            log.warning("%s waits for brokers: %s; asking again", what, error)
        await asyncio.sleep(AGAIN_S)
