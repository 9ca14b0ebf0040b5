"""`python -m kohort` is the command `kohort`, where no script of that name is on the PATH."""

from __future__ import annotations

from kohort.cli import run

run()
