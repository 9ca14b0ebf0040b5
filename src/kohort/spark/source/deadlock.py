"""Detects two sources of one query that share a group: with `availableNow` they deadlock.

Spark asks the sources of a query for their batches one after the other, and begins to read when all
have answered. The first one keeps its partitions until its batch is finished; a second one in the
same group waits for a share of them before it answers. Spark does not tell a source which query it
belongs to. But it requests the tasks of a batch as soon as every source has answered, so a batch
whose tasks are not requested waits for another source of its query.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path

from kohort.spark.completion.control import SOURCE, Control
from kohort.spark.options.source import SourceOptions
from kohort.spark.source.query_state import GroupInUseError

OFFERED = "offered-"
# Interval between checks of the application's other sources.
LOOK_S = 1.0
# Spark requests the tasks of a batch some milliseconds after the last source has answered; on a
# busy machine it takes seconds.
UNASKED_MAX_S = 60.0


class DeadlockCheck:
    """The sources of this application that are members of the same group.

    Args:
        control: The directory where sources find each other.
        options: The query's options, with the group.
    """

    def __init__(self, control: Control, options: SourceOptions) -> None:
        self._control = control
        self._group = options.group_id
        servers = ",".join(sorted(options.bootstrap_servers.split(",")))
        group = hashlib.sha256(f"{servers} {self._group}".encode()).hexdigest()[:32]
        self._mark = f"{OFFERED}{group}"
        # Unrequested batches: when they were offered, and when they were first seen.
        self._seen: dict[Path, tuple[int, float]] = {}

    def offered(self) -> None:
        """Tell the other sources that Spark has a batch whose tasks it has not requested."""
        with contextlib.suppress(FileNotFoundError):  # temporary files may have been removed
            (self._control.directory / self._mark).touch()

    def asked(self) -> None:
        """Tell the other sources that Spark has requested the tasks of the batch."""
        (self._control.directory / self._mark).unlink(missing_ok=True)

    def check(self) -> None:
        """Check that no other source waits for this one while this one waits for its share.

        Raises:
            GroupInUseError: Another source has waited for too long: it belongs to the same query.
        """
        now = time.monotonic()
        found = self._control.others(self._mark)
        self._seen = {
            mark: self._seen[mark] if self._seen.get(mark, (0, 0.0))[0] == at else (at, now)
            for mark, at in found.items()
        }
        for mark, (_, since) in self._seen.items():
            if now - since >= UNASKED_MAX_S and _is_alive(mark.parent):
                raise GroupInUseError(
                    f"this source waits for its share of group {self._group}, and another source "
                    "of the same application has offered Spark a batch of that group "
                    f"{now - since:.0f} s ago, which Spark has not begun to read: both are sources "
                    "of one query and wait for each other. Give each load() of a query a "
                    "kafka.group.id of its own"
                )


def _is_alive(source: Path) -> bool:
    """Whether the process of a source exists: a killed process leaves its directory behind."""
    process = source.name.removeprefix(SOURCE).partition("-")[0]
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs as another user
        pass
    return True
