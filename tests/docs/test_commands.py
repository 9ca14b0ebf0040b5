"""Each `kohort` command that a page shows exists, with the options that it is given there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from kohort.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TREE: Any = typer.main.get_command(app)


def commands(page: Path) -> Iterator[str]:
    """The commands of a page, in its text and in its blocks, without comments and pipes."""
    text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
    found = re.findall(r"`(kohort [a-z][^`]*)`", text.replace("\n", " "))
    for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL):
        found += re.findall(r"^\s*(?:\$ )?(kohort [a-z].*)$", block, re.MULTILINE)
    for line in found:
        yield re.split(r"\s#|\s[|>&]", line.replace("[", " ").replace("]", " "))[0]


def is_option(word: str, known: set[str]) -> bool:
    """Whether it is an option with or without its value, or a number."""
    named = word.split("=", maxsplit=1)[0] in known or word[:2] in known
    return named or re.match(r"-\d", word) is not None


def unknown(words: list[str]) -> list[str]:
    """What the command line does not know of the words after `kohort`."""
    command = TREE
    while words and words[0].split("|")[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0).split("|")[0]]
    if words and words[0] not in ("...", "does") and hasattr(command, "commands"):
        return words  # "kohort does not support ..." is a sentence
    known = {"--help"}.union(*(each.opts + each.secondary_opts for each in command.params))
    return [each for each in words if each.startswith("-") and not is_option(each, known)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_is_one(page: Path) -> None:
    wrong = {line: unknown(line.split()[1:]) for line in commands(page)}
    assert {line: words for line, words in wrong.items() if words} == {}


def test_the_pages_have_commands() -> None:
    assert sum(len(list(commands(page))) for page in PAGES) > 60
    assert unknown(["broker", "--data", "d", "--fault", "f"]) == ["--fault"]
