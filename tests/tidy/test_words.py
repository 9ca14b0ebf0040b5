"""Overused words of src and docs are counted in overused.toml, and become fewer."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

from tests.tidy import checks
from tests.tidy.test_repository import ROOT, select

COUNTS = Path(__file__).parent / "overused.toml"


def area(path: str) -> str:
    """Where a file's words are counted: its package, or `docs`."""
    parts = path.split("/")
    return "/".join(parts[: 3 if parts[0] == "src" and len(parts) > 3 else 1])


def counted() -> Counter[str]:
    """The overused words of each area."""
    words: Counter[str] = Counter()
    for path in select(".md", ".py", ".pyx", ".toml", under=("src/", "docs/", "pyproject.toml")):
        words[area(path)] += len(checks.overused_words((ROOT / path).read_text(encoding="utf-8")))
    return words


def test_overused_words_become_fewer() -> None:
    """Say it in other words; when an area has fewer than its number, lower the number."""
    allowed = tomllib.loads(COUNTS.read_text(encoding="utf-8"))["most"]
    more = {name: n for name, n in counted().items() if n > allowed.get(name, 0)}
    assert {name: f"{n}, at most {allowed.get(name, 0)}" for name, n in more.items()} == {}
