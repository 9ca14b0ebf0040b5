"""Patterns of topic names that the broker resolves (KIP-848)."""

from __future__ import annotations

import re

# Ends in a `.*` that is neither escaped nor a part of one alternative only.
_OPEN_END = re.compile(r"(?:[^|\\]|\\.)*(?<!\\)\.\*")


def whole_name(pattern: str) -> str:
    """Return a pattern that matches whole names where `pattern` matches from their start.

    The broker wants a whole name to match, this client's own patterns only its beginning. Changing
    `group_protocol` must not change the topics that a pattern means.

    Args:
        pattern: A regular expression in RE2's syntax, which is also Python's but for backtracking.
    """
    return pattern if _OPEN_END.fullmatch(pattern) else f"(?:{pattern}).*"
