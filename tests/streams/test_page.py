"""docs/internals/streams-rules.md: complete, and true about code and tests."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent
TEXT = (HERE.parents[1] / "docs" / "internals" / "streams-rules.md").read_text(encoding="utf-8")
RULES = [line for line in TEXT.splitlines() if re.match(r"\| \d+ \|", line)]
CODE = re.compile(r"`([a-z]+)\.(\w+)`")


def test_the_page_has_all_rules_each_with_its_source_code_and_test() -> None:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in RULES]
    assert [int(row[0]) for row in cells] == list(range(1, 20))
    for number, _, source, code, test in cells:
        assert source.startswith("draft")
        assert CODE.search(code)
        assert f"`test_{number}_" in test


def test_the_page_names_only_tests_that_exist_and_all_that_have_a_number() -> None:
    here = "".join(each.read_text(encoding="utf-8") for each in HERE.rglob("test_*.py"))
    named = set(re.findall(r"`(test_\d+_\w+)`", TEXT))
    assert {each for each in named if f"def {each}(" not in here} == set()
    assert set(re.findall(r"def (test_\d+_\w+)\(", here)) == named


def test_the_page_names_only_code_that_exists() -> None:
    for module, name in {each for line in RULES for each in CODE.findall(line)}:
        assert hasattr(import_module(f"kohort.streams.assignment.{module}"), name)


def test_misprints_are_named_in_the_test_of_the_tables() -> None:
    assert (
        len(re.findall(r"[Mm]isprint", (HERE / "assignment" / "test_tables.py").read_text())) == 5
    )
