"""The rules that hold in every run: each a named function with its sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from msgspec import Struct

from kohort.simulation.groups.facts import Fact

if TYPE_CHECKING:
    from kohort.simulation.groups.base import BaseWorld

Checker: TypeAlias = "Callable[[BaseWorld, Fact], str | None]"

F = TypeVar("F", bound=Fact)


class Rule(Struct, frozen=True):
    """A rule and the function that checks it.

    Attributes:
        name: Its name, with S for safety and L for liveness.
        text: Its sentence.
        fact: The class of facts that it checks.
        function: Returns the complaint, None if the rule holds.
        about: Classes of `about` that such a fact must have; empty: any.
    """

    name: str
    text: str
    fact: type
    function: Checker
    about: tuple[type, ...] = ()

    def applies(self, fact: type, about: type) -> bool:
        """Return whether it checks such a fact about this class."""
        return self.fact is fact and (not self.about or about in self.about)


RULES: list[Rule] = []


def rule(
    name: str, text: str, *facts: type[Fact], about: tuple[type, ...] = ()
) -> Callable[[Callable[[BaseWorld, F], str | None]], Callable[[BaseWorld, F], str | None]]:
    """Register a checker for some facts.

    Args:
        name: Name of the rule.
        text: Its sentence.
        *facts: The classes of facts that it checks.
        about: What they must be about: classes of requests, events or sessions; empty: any.
    """

    def register(
        function: Callable[[BaseWorld, F], str | None],
    ) -> Callable[[BaseWorld, F], str | None]:
        checker = cast("Checker", function)
        RULES.extend(Rule(name, text, fact, checker, about) for fact in facts)
        return function

    return register


class Checkers(dict[tuple[type, type], tuple[Rule, ...]]):
    """Rules by a fact's class and `about`, so that each fact is checked only by its own rules.

    Args:
        rules: The rules.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        super().__init__()
        self._rules = tuple(rules)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def __missing__(self, kind: tuple[type, type]) -> tuple[Rule, ...]:
        found = self[kind] = tuple(each for each in self._rules if each.applies(*kind))
        return found
