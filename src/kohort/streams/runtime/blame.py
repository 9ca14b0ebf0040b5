"""Decides whether a record or something else caused an exception."""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType

from kohort.streams.errors import StateError


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
