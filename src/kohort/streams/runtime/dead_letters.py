"""The headers of dead letters: error, record and step (KIP-1034)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.wire.records.record import Headers

if TYPE_CHECKING:
    from kohort.streams.runtime.buffers import InputRecord

_PREFIX = "__streams.errors."
_LONGEST = 1_000  # maximum length of a message


def error_headers(record: InputRecord, error: BaseException, step: str) -> Headers:
    """Return the headers of a dead letter in addition to those of its record.

    The names are those of KIP-1034. The step replaces the stack trace, which is in the log.
    """
    said = {
        "exception": type(error).__qualname__,
        "message": str(error)[:_LONGEST],
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "step": step,
    }
    return tuple(
        (_PREFIX + name, text.encode(errors="backslashreplace")) for name, text in said.items()
    )
