"""The rules that hold in every run: each a named function with the sentence it stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from kohort.simulation.facts import Fact

if TYPE_CHECKING:
    from kohort.simulation.world import Checker, Checkers, World

F = TypeVar("F", bound=Fact)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule and the function that checks it.

    Attributes:
        name: Its name: S for safety, L for liveness, as in the list it comes from.
        text: What it says.
        fact: Upon which fact it is checked.
        function: Returns what is wrong, None when nothing is.
    """

    name: str
    text: str
    fact: type
    function: Checker


RULES: list[Rule] = []


def rule(
    name: str, text: str, *facts: type[Fact]
) -> Callable[[Callable[[World, F], str | None]], Callable[[World, F], str | None]]:
    """Register a checker for some facts."""

    def register(function: Callable[[World, F], str | None]) -> Callable[[World, F], str | None]:
        checker = cast("Checker", function)
        RULES.extend(Rule(name, text, fact, checker) for fact in facts)
        return function

    return register


def by_fact(rules: list[Rule]) -> Checkers:
    """Return the checkers of each kind of fact."""
    kinds = dict.fromkeys(each.fact for each in rules)
    return {
        kind: tuple((each.name, each.function) for each in rules if each.fact is kind)
        for kind in kinds
    }
