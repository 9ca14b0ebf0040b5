"""docs/internals/architecture.md names files and functions that are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "kohort"
PAGE = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
# The steps of a trip: number, function, file, what happens.
STEP = re.compile(r"^\| \d+ \| `([\w.]+)` \| `([\w/.]+\.py)` \|", re.MULTILINE)
TRIPS = 3
# What stands in backticks and has a slash, or ends like a file.
NAMED = re.compile(r"`([\w./*-]+(?:/[\w.*-]+|\.(?:py|pyx|toml|md)))`")


def functions_of(file: Path) -> set[str]:
    """Qualified names of a file's functions and methods."""
    return set(_defined(ast.parse(file.read_text(encoding="utf-8")).body, ""))


def _defined(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name
        elif isinstance(node, ast.ClassDef):
            yield from _defined(node.body, f"{prefix}{node.name}.")


def homes_of(function: str) -> list[str]:
    """The files that have such a function now."""
    found = (file for file in sorted(SOURCE.rglob("*.py")) if function in functions_of(file))
    return [file.relative_to(SOURCE).as_posix() for file in found]


@pytest.mark.parametrize(("function", "file"), sorted(set(STEP.findall(PAGE))))
def test_a_step_names_a_function_that_is_there(function: str, file: str) -> None:
    path = SOURCE / file
    if path.is_file() and function in functions_of(path):
        return
    now = ", ".join(homes_of(function)) or "no file: look for the function that does this now"
    raise AssertionError(
        f"docs/internals/architecture.md says that {function} is in {file}. It is in {now}. "
        "Name the right one in the step, and read whether the step still says what happens."
    )


def test_the_page_has_its_trips() -> None:
    trips = PAGE.split("## Three trips through the code")[1].split("### ")[1:]
    assert [bool(STEP.search(trip)) for trip in trips] == [True] * TRIPS


def test_every_file_that_the_page_names_is_there() -> None:
    missing = [
        name
        for name in sorted(set(NAMED.findall(PAGE)))
        if not any(_exists(folder, name) for folder in (SOURCE, ROOT))
    ]
    assert missing == [], f"docs/internals/architecture.md names what is not there: {missing}"


def _exists(folder: Path, name: str) -> bool:
    return bool(list(folder.glob(name))) if "*" in name else (folder / name).exists()
