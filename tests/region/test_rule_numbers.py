"""Each behaviour that the document of IBM Streams describes has a test that bears its number."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "region-rules.md"


def test_what_the_document_describes_is_tested_by_number() -> None:
    rows = re.findall(r"^\| (\d+)(\*?) \| .* \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, 72))
    described = {number: tests for number, star, tests in rows if star}
    assert len(described) == 27
    texts = [
        path.read_text() for name in ("region", "spark") for path in TESTS.glob(f"{name}/*.py")
    ]
    names = set(re.findall(r"^def (test_a\d+_\w+)", "\n".join(texts), re.MULTILINE))
    for number, tests in described.items():
        named = re.findall(rf"`(test_(?:a\d+_)*a{number}_\w+)`", tests)
        assert named, f"number {number} has no test with its number"
        assert set(named) <= names
