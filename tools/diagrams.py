"""Generate the diagrams of the state machines in docs/internals/diagrams from their tables."""

from __future__ import annotations

from pathlib import Path

from kohort.group.diagrams import pages

FOLDER = Path(__file__).parents[1] / "docs" / "internals" / "diagrams"


def main() -> None:
    """Write one file for each machine."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
