"""Run the command `kohort` as `python -m kohort`, for when the script is not on the PATH."""

from __future__ import annotations

from kohort.cli import run

run()
