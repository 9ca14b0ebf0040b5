"""How a request is turned down in the middle of a decision."""

from __future__ import annotations

from kohort.errors import ErrorCode, Portable, clipped


class Refused(Portable, Exception):
    """The request is answered with this error, and nothing else comes of it.

    A decision changes nothing until it is installed, so whatever it had worked out is dropped.

    Attributes:
        code: The error.
        message: Text for people, None when the code says it all.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = clipped(message)
