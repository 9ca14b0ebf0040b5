"""An exception between any two bytecodes, as the handler of a signal may raise it."""

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
    """What the handler raises."""


class Interrupt:
    """Raises before one bytecode of this thread, out of those in the code of the client.

    Args:
        position: Which one, from 1.
        handler: What is called there, and may raise.

    Attributes:
        is_over: Whether it was called.
    """

    def __init__(self, position: int, handler: Callable[[], object]) -> None:
        self.is_over = False
        self._left = position
        self._handler = handler

    def __call__(self, function: Callable[[], object]) -> None:
        """Call a function and interrupt it; whatever else comes out of it is raised."""
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
    """Raise as the handler of a signal does."""
    raise BoomError


def interrupts(handler: Callable[[], object] = boom, every: int = 1) -> Iterator[Interrupt]:
    """One for each position, up to the first that was behind the end of what was interrupted.

    Args:
        handler: What is called there, and may raise.
        every: Take each so many-th position, beginning at a random one of the first.
    """
    position = random.randint(1, every)
    while True:
        interrupt = Interrupt(position, handler)
        yield interrupt
        if not interrupt.is_over:
            return
        position += every
