"""Each line of docs/internals/conformance.md names tests that exist, or says how it was tried."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "internals" / "conformance.md").read_text(encoding="utf-8")
PAGE = TEXT.partition("## Measured")[0]
NAMED = re.compile(r"`([^`]+)`")


def rows() -> list[tuple[str, str]]:
    """What each line claims, and its last column."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and "|---" not in line]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    table = [each for each in cells if each[-1] != "where" and len(each) == 3]
    return [(each[0], each[-1]) for each in table]


def files(where: str) -> Iterator[str]:
    """The tests that a line names; a bare name is in the folder of the one before it."""
    folder = ""
    for name in NAMED.findall(where):
        if name.startswith("tests/"):
            folder = name.rpartition("/")[0]
            yield name
        elif re.fullmatch(r"[\w*{},]+\.py", name):
            yield f"{folder}/{name}"


def found(name: str) -> list[Path]:
    """What a name stands for, which may have `*` and `{a,b}` in it."""
    braces = re.search(r"\{([^}]*)\}", name)
    if braces is None:
        return list(ROOT.glob(name))
    parts = (name.replace(braces[0], part) for part in braces[1].split(","))
    return [path for part in parts for path in found(part)]


@pytest.mark.parametrize(("claim", "where"), rows())
def test_a_line_names_tests_that_there_are(claim: str, where: str) -> None:
    assert [name for name in files(where) if not found(name)] == []


def test_a_line_without_tests_says_how_it_was_tried() -> None:
    silent = [
        claim
        for claim, where in rows()
        if not list(files(where)) and "`" not in where and "by hand" not in claim
    ]
    assert silent == []
    assert len(rows()) > 60
