"""Errors of file systems, told by the place where output cannot be stored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from kohort.region.errors import SinkError

_COLOUR = re.compile("\x1b\\[[0-9;]*m")


@contextmanager
def storing(place: object) -> Iterator[None]:
    """Name the place in the error when output cannot be stored there.

    Raises:
        SinkError: It cannot; the cause is the error of the file system.
    """
    try:
        yield
    except OSError as error:
        raise SinkError(
            f"output cannot be stored in {place}: {one_line(error)}. This operator ends; what it "
            "has processed since the last checkpoint is processed again"
        ) from error


def one_line(error: Exception) -> str:
    """Return what an error says in one line, without colours: deltalake's has neither."""
    return " ".join(_COLOUR.sub("", str(error)).replace("\u21b3", ":").split()).replace(" :", ":")
