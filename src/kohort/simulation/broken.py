"""The error with which the simulators of regions and of transactions end a run."""

from __future__ import annotations

from kohort.errors import Portable


class RuleBrokenError(Portable, Exception):
    """A rule of a simulated region, or of simulated transactions, was broken.

    Attributes:
        checker: Which.
    """

    def __init__(self, checker: str, text: str) -> None:
        """Make the error."""
        self.checker = checker
        super().__init__(f"{checker}: {text}")
