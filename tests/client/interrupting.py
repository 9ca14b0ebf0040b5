"""An exception between any two bytecodes, as a signal handler may raise."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import kohort

OURS = str(Path(kohort.__file__).parent)


class BoomError(Exception):
    """The exception of the handler."""


class Interrupt:
    """Raises before one bytecode in the client's code, in this thread.

    Args:
        position: Number of the bytecode, from 1.
        handler: Called there; may raise.

    Attributes:
        is_over: Whether it was called.
    """

    def __init__(self, position: int, handler: Callable[[], object]) -> None:
        self.is_over = False
        self._left = position
        self._handler = handler

    def __call__(self, function: Callable[[], object]) -> None:
        """Call a function and interrupt it; other exceptions propagate."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            function()
        except BoomError:
            assert self.is_over
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and not self.is_over:
            self._left -= 1
            if self._left == 0:
                self.is_over = True
                self._handler()
        return self._trace


def boom() -> None:
    """Raise like a signal handler."""
    raise BoomError


def interrupts(handler: Callable[[], object] = boom, every: int = 1) -> Iterator[Interrupt]:
    """Yield an interrupt for each position, until one is past the end of the interrupted code.

    Args:
        handler: Called there; may raise.
        every: Use only every n-th position, with a random start.
    """
    position = random.randint(1, every)
    while True:
        interrupt = Interrupt(position, handler)
        yield interrupt
        if not interrupt.is_over:
            return
        position += every
