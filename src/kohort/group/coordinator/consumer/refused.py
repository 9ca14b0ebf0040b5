"""The exception that refuses a request in the middle of a decision."""

from __future__ import annotations

from kohort.errors import ErrorCode, Portable, clipped


class Refused(Portable, Exception):
    """The request is answered with this error, and has no other effect.

    A decision changes nothing until it is installed, so its effects so far are dropped.

    Attributes:
        code: The error.
        message: Text for people, None when the code is enough.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = clipped(message)
