"""Errors of file systems, with the place where output cannot be stored."""

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
        SinkError: Storing failed; `__cause__` is the error of the file system.
    """
    try:
        yield
    except OSError as error:
        raise SinkError(
            f"output cannot be stored in {place}: {one_line(error)}. This operator ends; what it "
            "has processed since the last checkpoint is processed again"
        ) from error


def one_line(error: Exception) -> str:
    """Return an error's text in one line, without the colours and line breaks of deltalake."""
    return " ".join(_COLOUR.sub("", str(error)).replace("\u21b3", ":").split()).replace(" :", ":")
