"""Decides whether a record caused an exception, and which broker errors are retried."""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
import threading
from collections.abc import Awaitable, Callable
from types import CodeType, FunctionType, MethodType
from typing import TypeVar

from kohort.client.net.backoff import may_pass
from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.streams.errors import StateError

log = logging.getLogger("kohort.streams")
AGAIN_S = 0.5
"""The delay before the next attempt; the client itself has already retried for a while."""
_KNOWN = frozenset(ErrorCode)
# Waiting does not bring back a deleted or recreated topic.
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
T = TypeVar("T")


def is_of_the_record(error: BaseException, awaited_by: asyncio.Task[object] | None) -> bool:
    """Whether a function of the program raised this itself, so that `on_error` applies.

    A full disk, a cancelled run or a signal is not the record's fault.

    Args:
        error: The exception.
        awaited_by: The task that awaited the function; None: it was called.
    """
    match error:
        case StateError() | MemoryError():
            return False
        case asyncio.CancelledError() if awaited_by is not None:
            return not awaited_by.cancelling()
        case GeneratorExit() if awaited_by is not None:
            return current_task() is awaited_by  # otherwise the coroutine was closed from outside
        case KeyboardInterrupt() | SystemExit():
            return not _is_of_a_signal(error)
        case _:
            return True


def current_task() -> asyncio.Task[object] | None:
    """Return the current asyncio task; None if no loop is running."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _is_of_a_signal(error: BaseException) -> bool:
    """Whether a signal handler raised this: Python runs it inside any code of the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return False
    is_interrupt = isinstance(error, KeyboardInterrupt)
    if is_interrupt and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        return True  # raised by Python's own handler, which has no frame
    handlers = {_code_of(signal.getsignal(each)) for each in signal.valid_signals()}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: Callable[..., object] | int | None) -> CodeType | None:
    function: object = handler
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, MethodType):
        function = function.__func__
    return function.__code__ if isinstance(function, FunctionType) else None


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
