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
        name: Its name: S for safety, L for liveness, as in the list it comes from.
        text: Its sentence.
        fact: The class of facts that it checks.
        function: Returns what is wrong, None when nothing is.
        about: Classes that such a fact must be about; empty: any.
    """

    name: str
    text: str
    fact: type
    function: Checker
    about: tuple[type, ...] = ()

    def applies(self, fact: type, about: type) -> bool:
        """Whether it checks such a fact about this class."""
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
    """Rules by the class of a fact and by its `about`, so that each fact only meets its rules.

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
