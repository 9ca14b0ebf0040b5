"""Errors of the operating system: their answers to clients, as in Kafka, and the log lines."""

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

# An almost full disk takes small batches and refuses large ones many times a second. The log says
# at most this often that writes succeed again.
_TOLD_AGAIN_S = 60.0
_FREE = "free space on its file system, or delete topics"
_ADVICE = {
    errno.ENOSPC: _FREE,
    errno.EDQUOT: _FREE,
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files",
    errno.EACCES: "allow the broker's user to write there",
    errno.EROFS: "mount its file system for writing",
}


class Storage:
    """Monitors the operations on a data directory.

    Args:
        clock: Returns seconds, from an arbitrary start.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quiet_until = float("-inf")
        # The files that could not be written, by cause, and the causes that were logged.
        self._failing: dict[int | str, set[Path]] = {}
        self._told: set[int | str] = set()

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Convert an error of the operating system to Kafka's, and log it once.

        Args:
            path: The file or directory that is read.

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
        """As `reading`; a cause ends once all files that failed because of it have been written."""
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
            logger.warning("%s: writes to the disk succeed again", path)

    def _tell(self, path: Path, error: OSError) -> None:
        cause = error.errno or str(error)
        self._failing.setdefault(cause, set()).add(path)
        if cause in self._told:
            return
        self._told.add(cause)
        if error.errno is None:  # raised by us, with advice
            logger.error("%s; clients get KAFKA_STORAGE_ERROR and retry", error)
            return
        logger.error(
            "%s: %s; clients get KAFKA_STORAGE_ERROR and retry: %s",
            path,
            os.strerror(error.errno),
            advice(error),
        )


def advice(error: OSError) -> str:
    """Return advice for a person on an error of the operating system."""
    return _ADVICE.get(error.errno or 0, "check the disk and the system log")
