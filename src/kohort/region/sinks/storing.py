"""File system errors, with the location where output cannot be stored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from kohort.region.errors import SinkError

_COLOUR = re.compile("\x1b\\[[0-9;]*m")


@contextmanager
def storing(place: object) -> Iterator[None]:
    """Add the location to the error if output cannot be stored there.

    Raises:
        SinkError: Storing failed; `__cause__` is the file system's error.
    """
    try:
        yield
    except OSError as error:
        raise SinkError(
            f"output cannot be stored in {place}: {one_line(error)}. This operator stops; records "
            "processed since the last checkpoint are processed again"
        ) from error


def one_line(error: Exception) -> str:
    """Return an error's text as one line, without deltalake's colours and line breaks."""
    return " ".join(_COLOUR.sub("", str(error)).replace("\u21b3", ":").split()).replace(" :", ":")
