"""`replace`, by the name under which the machines know it."""

from __future__ import annotations

from kohort.values import replace

__all__ = ["replace"]
