"""The `kohort` command.

Stability: experimental.
"""

from __future__ import annotations

import sys

from kohort.extras import MissingExtraError, needed_by


def run() -> None:
    """Run the command, or say which extra it needs."""
    try:
        with needed_by("the command kohort"):
            from kohort.cli.main import main
    except MissingExtraError as error:
        sys.exit(f"kohort: {error}")
    main()
