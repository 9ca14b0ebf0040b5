"""Decorators for tests that are coroutines."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import ParamSpec

P = ParamSpec("P")


Test = Callable[P, Coroutine[object, object, None]]


def on_a_loop_for(limit_s: float) -> Callable[[Test[P]], Callable[P, None]]:
    """Run a test on its own loop; its time limit is far above that of any good run."""

    def wrap(test: Test[P]) -> Callable[P, None]:
        @functools.wraps(test)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            async def limited() -> None:
                async with asyncio.timeout(limit_s):
                    await test(*args, **kwargs)

            asyncio.run(limited())

        return run

    return wrap


def on_a_loop(test: Test[P]) -> Callable[P, None]:
    """Like `on_a_loop_for`, with the time limit of most tests."""
    return on_a_loop_for(60)(test)
