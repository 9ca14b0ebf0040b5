"""The text of an error, which is never empty."""

from __future__ import annotations


def in_words(error: BaseException | None) -> str:
    """Return the text of an error, or the name of its type if it is empty (`TimeoutError()`)."""
    return str(error) or type(error).__name__
