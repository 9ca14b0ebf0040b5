"""The reference is complete: what a caller needs stands in the docstring of each public name."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

from tests.docs import reference

SITE = Path(__file__).parents[2] / "docs" / "site"
EVERY = dict(reference.described())

# Not made by applications.
INTERNAL = {
    "kohort.streams.Stream",  # made by `App.topic` and by steps
    "kohort.streams.Table",  # made by steps
    "kohort.streams.Table.check_joined",
}
PUBLIC = sorted(EVERY.keys() - INTERNAL)
# A time without its unit in its name, as `timeout_ms` has it.
TIME = re.compile(r"(timeout|interval|duration|period|backoff|delay)$")
UNIT = re.compile(r"\b(milliseconds|seconds|ms|s)\b")


def test_a_public_name_has_a_docstring() -> None:
    assert [name for name, value in EVERY.items() if not value.__doc__] == []


def test_each_argument_is_described() -> None:
    """Under Args or Attributes or in backticks; there, at its class, or at the class's twin."""
    missing = {name: reference.missing_parameters(name, EVERY[name]) for name in PUBLIC}
    assert {name: each for name, each in missing.items() if each} == {}


def test_each_error_that_is_raised_on_purpose_is_named() -> None:
    """Under Raises, with when it comes."""
    missing = {name: reference.missing_errors(EVERY[name]) for name in PUBLIC}
    assert {name: each for name, each in missing.items() if each} == {}


def test_times_have_units() -> None:
    """In the name of the argument, or in words."""
    assert {name: each for name in PUBLIC if (each := without_unit(name))} == {}


def without_unit(name: str) -> list[str]:
    """Return the arguments that are times, and whose unit stands nowhere."""
    given = [each for each in reference.parameters(EVERY[name]) if TIME.search(each)]
    texts = (inspect.getdoc(place) or "" for place in reference.places(name, EVERY[name]))
    return [] if not given or UNIT.search(" ".join(texts)) else given


def test_every_public_name_is_on_a_page_of_the_reference() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (SITE / "api").glob("*.rst"))
    whole = set(re.findall(r"automodule:: (\S+)\n   :members:", pages))
    named = set(re.findall(r"auto(?:class|exception|function|data):: (\S+)", pages))
    named |= set(re.findall(r"py:(?:data|type):: (\S+)", pages))
    shown = {each.rpartition(".")[2] for each in named}
    missing = [
        name
        for package in reference.PACKAGES
        for name in import_module(package).__all__
        if name not in {*shown, "__version__"}
        and not any(hasattr(import_module(each), name) for each in whole)
    ]
    assert missing == [], "add them to a page in docs/site/api"


def test_an_argument_without_words_is_found() -> None:
    def documented(there: int, elsewhere: int, missing: int) -> None:
        """Do something with `elsewhere`.

        Args:
            there: It is described.

        Raises:
            ValueError: It is named.
        """
        if missing:
            raise ValueError(there)
        raise KeyError(elsewhere)

    assert reference.missing_parameters("documented", documented) == ["missing"]
