"""docs/internals/region-rules.md: complete, and true about its tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "internals" / "region-rules.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+)(\*?) \| .* \| (.*) \|$", PAGE, re.MULTILINE)


def here() -> str:
    """Return the text of all tests that may bear a number."""
    files = [*TESTS.glob("region/**/test_*.py"), *TESTS.glob("spark/**/test_*.py")]
    return "".join(each.read_text(encoding="utf-8") for each in files)


def test_the_page_has_all_numbers_and_names_only_tests_that_exist() -> None:
    assert [int(number) for number, _, _ in ROWS] == list(range(1, 72))
    text = here()
    named = set(re.findall(r"`(test_\w+[a-z])`", PAGE))
    assert {each for each in named if f"def {each}(" not in text} == set()
    numbered = set(re.findall(r"def (test_(?:a|rc)\d+_\w+)\(", text))
    assert numbered <= named


@pytest.mark.parametrize(("kind", "count"), [("RC", 15), ("RF", 14)])
def test_each_point_of_the_controller_and_each_fault_has_a_test_or_a_reason(
    kind: str, count: int
) -> None:
    points = re.findall(rf"^\| ({kind}\d+) \| .* \| (.*) \|$", PAGE, re.MULTILINE)
    assert [number for number, _ in points] == [f"{kind}{each}" for each in range(1, count + 1)]
    said = re.compile(r"`test_\w+`|does not apply: \w|see numbers? \d")
    assert [number for number, here in points if not said.search(here)] == []


def test_what_the_document_of_the_original_describes_has_a_test_with_its_number() -> None:
    described = {number: tests for number, star, tests in ROWS if star}
    assert len(described) == 27
    for number, tests in described.items():
        assert re.search(rf"`test_(?:a\d+_)*a{number}_\w+`", tests), f"number {number} has no test"
