"""A process that dies at a chosen file system operation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

STEPS = ("rename", "replace", "unlink", "ftruncate", "fsync", "write")


class Crash(BaseException):
    """Stands for the death of the process: no code catches it."""


@contextmanager
def dying_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Allow this many operations, then do half of the next one if it is a write, and die."""
    left = steps

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            if left == 0:
                if name == "write":
                    descriptor, data = arguments
                    real(descriptor, bytes(data)[: len(data) // 2])
                raise Crash
            left -= 1
            return real(*arguments, **named)

        return step

    with monkeypatch.context() as patched:
        for name in STEPS:
            patched.setattr(os, name, counted(name, getattr(os, name)))
        yield
