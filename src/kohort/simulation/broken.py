"""The error that ends a run of the simulators of regions and transactions."""

from __future__ import annotations

from kohort.errors import Portable


class RuleBrokenError(Portable, Exception):
    """A rule of a simulated region, or of simulated transactions, was broken.

    Attributes:
        checker: Name of the rule.
    """

    def __init__(self, checker: str, text: str) -> None:
        """Make the error."""
        self.checker = checker
        super().__init__(f"{checker}: {text}")
