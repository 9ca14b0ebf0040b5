"""Keyed randomness: the draws of one part never depend on those of another.

A seed decides everything, but not as one stream: each purpose and entity has a stream of its own,
and each draw takes exactly one number from it. So the n-th delay on a connection is the same
whether or not a fault elsewhere was left out, and shrinking does not change the parts that it
keeps.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import log
from typing import TypeVar

T = TypeVar("T")


class Stream:
    """The numbers of one purpose and entity; the n-th one is a function of (key, n).

    Args:
        seed: Seed of the run.
        purpose: What the numbers are for.
        entity: The entity that draws them.
    """

    __slots__ = ("_next",)

    def __init__(self, seed: int, purpose: str, entity: str = "") -> None:
        self._next = random.Random(f"{seed}/{purpose}/{entity}").random

    def uniform(self) -> float:
        """Return a number from 0 up to, but not including, 1."""
        return self._next()

    def happens(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._next() < probability

    def between(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, both included."""
        return low + int(self._next() * (high - low + 1))

    def exponential(self, mean: float) -> float:
        """Return a number with this mean, most of them small."""
        return -log(1.0 - self._next()) * mean

    def choice(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        return options[int(self._next() * len(options))]

    def sample(self, options: Sequence[T], count: int) -> list[T]:
        """Return `count` of the options, or all of them, in their order."""
        left = list(range(len(options)))
        chosen = sorted(
            left.pop(int(self._next() * len(left))) for _ in range(min(count, len(left)))
        )
        return [options[index] for index in chosen]
