"""docs/region-rules.md: complete, and true about its tests."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "region-rules.md"


def test_the_page_has_all_numbers_and_names_only_tests_that_exist() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert [int(each) for each in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)] == list(
        range(1, 72)
    )
    here = "".join(
        each.read_text(encoding="utf-8") for each in Path(__file__).parent.glob("test_*.py")
    )
    named = set(re.findall(r"`(test_a?\d+_\w+[a-z])`", text))
    assert {each for each in named if f"def {each}(" not in here} == set()
    numbered = set(re.findall(r"def (test_a\d+_\w+)\(", here))
    assert numbered <= named
