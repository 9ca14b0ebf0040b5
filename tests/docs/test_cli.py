"""The examples of docs/cli.md print what the page says, one after the other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from kohort import EmbeddedBroker

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
BLOCKS = re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
DEADLINE_S = 100


def examples() -> list[tuple[str, str]]:
    """Each command, and what it prints."""
    found = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(BLOCKS), re.MULTILINE)
    assert sum(block.count("\n$ ") + 1 for block in BLOCKS) == len(found)
    return found


def printed(command: str, bootstrap: str, folder: Path) -> str:
    """What a shell prints; spaces at the ends of lines do not count."""
    kohort = f'kohort() {{ "{sys.executable}" -m kohort "$@"; }}; exec 2>&1; '
    done = subprocess.run(
        ["bash", "-c", kohort + command.replace("localhost:9092", bootstrap)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        cwd=folder,
    )
    return re.sub(r" +$", "", done.stdout, flags=re.MULTILINE)


def test_every_example_prints_what_the_page_says(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        for command, expected in examples():
            assert printed(command, broker.bootstrap_servers, tmp_path) == expected, command
