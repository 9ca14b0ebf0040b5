"""`python -m kohort.cli` is the command `kohort` too."""

from __future__ import annotations

from kohort.cli import run

run()
