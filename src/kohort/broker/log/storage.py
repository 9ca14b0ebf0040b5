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

# A disk that is almost full takes small batches and refuses large ones, many times a second.
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
        self._quiet_until: dict[int | None, float] = {}
        self._failing: set[int | None] = set()

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
        """As `reading`; when it is done, nothing is refused any more."""
        with self.reading(path):
            yield
        if self._failing:
            self._failing.clear()
            logger.warning("%s: the disk takes what is written again", path)

    def _tell(self, path: Path, error: OSError) -> None:
        now = self._clock()
        if error.errno in self._failing or now < self._quiet_until.get(error.errno, now):
            return
        self._quiet_until[error.errno] = now + _TOLD_AGAIN_S
        self._failing.add(error.errno)
        reason = os.strerror(error.errno) if error.errno else str(error)
        advice = _ADVICE.get(error.errno or 0, "look at the disk and at the system's log")
        logger.error(
            "%s: %s; clients are told KAFKA_STORAGE_ERROR and try again: %s", path, reason, advice
        )
