"""docs/spark-migration.md moves a query from one source to the other and back, as it is written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.spark.moving import kohort

PAGE = (Path(__file__).parents[2] / "docs" / "spark-migration.md").read_text()


def commands() -> list[list[str]]:
    """Every command of the page, without the program's name."""
    found = re.findall(r"^    kohort spark (.*)$", PAGE, re.MULTILINE)
    assert len(found) == 4
    return [shlex.split(each) for each in found]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_is_understood(command: list[str], tmp_path: Path) -> None:
    """It comes as far as the checkpoint or the brokers, which are not there."""
    places = {"localhost:9092": "127.0.0.1:1"}
    for name in ("old-checkpoint", "new-checkpoint", "third-checkpoint"):
        places[name] = str(tmp_path / name)
    words = [places.get(word, word) for word in command]
    done = kohort(*words)
    assert done.returncode == 1
    assert "give the checkpointLocation of a query" in done.stderr or "127.0.0.1:1" in done.stderr


def test_every_option_that_the_page_names_is_one() -> None:
    section = PAGE.split("## Moving a query")[1].split("## Options for reading")[0]
    names = set(re.findall(r"--[a-z][a-z-]+", section))
    known = set()
    for command in ("import-checkpoint", "export-checkpoint", "export-offsets"):
        known |= set(re.findall(r"--[a-z][a-z-]+", kohort(command, "--help").stdout))
    assert {name for name in names if name not in known} == set()
