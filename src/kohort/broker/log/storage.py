"""What the operating system refuses: told to clients as Kafka does, and in the broker's log."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kohort.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

# A disk that is almost full takes small batches and refuses large ones, many times a second: so
# often it is said that it takes them again.
_TOLD_AGAIN_S = 60.0
_FREE = "free space on its file system, or delete topics"
_ADVICE = {
    errno.ENOSPC: _FREE,
    errno.EDQUOT: _FREE,
    errno.EFBIG: "raise the largest size of a file (ulimit -f)",
    errno.EMFILE: "raise the number of open files (ulimit -n)",
    errno.ENFILE: "raise the number of open files of the system",
    errno.EACCES: "let the broker's user write there",
    errno.EROFS: "mount its file system for writing",
}


class Storage:
    """Watches the operations on one data directory.

    Args:
        clock: Seconds, from an arbitrary start.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quiet_until = float("-inf")
        # What could not be written last, by cause, and the causes that the log names as present.
        self._failing: dict[int | str, set[Path]] = {}
        self._told: set[int | str] = set()

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Turn what the operating system refuses into Kafka's error; tell it once.

        Args:
            path: What is read.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        try:
            yield
        except OSError as error:
            self._tell(path, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    @contextmanager
    def writing(self, path: Path) -> Iterator[None]:
        """As `reading`; a cause is over when all that it kept from being written was written."""
        with self.reading(path):
            yield
        if self._told:
            self._note_written(path)

    def _note_written(self, path: Path) -> None:
        for paths in self._failing.values():
            paths.discard(path)
        self._failing = {cause: paths for cause, paths in self._failing.items() if paths}
        now = self._clock()
        if self._told - self._failing.keys() and now >= self._quiet_until:
            self._quiet_until = now + _TOLD_AGAIN_S
            self._told &= self._failing.keys()
            logger.warning("%s: the disk takes what is written again", path)

    def _tell(self, path: Path, error: OSError) -> None:
        cause = error.errno or str(error)
        self._failing.setdefault(cause, set()).add(path)
        if cause in self._told:
            return
        self._told.add(cause)
        if error.errno is None:  # ours, and says what to do
            logger.error("%s; clients are told KAFKA_STORAGE_ERROR and try again", error)
            return
        logger.error(
            "%s: %s; clients are told KAFKA_STORAGE_ERROR and try again: %s",
            path,
            os.strerror(error.errno),
            advice(error),
        )


def advice(error: OSError) -> str:
    """Return what a person can do about something that the operating system refuses."""
    return _ADVICE.get(error.errno or 0, "look at the disk and at the system's log")
