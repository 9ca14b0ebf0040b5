"""Key-value stores of tasks."""

from __future__ import annotations

from kohort.streams.stores.memory import MemoryStore
from kohort.streams.stores.store import Change, Store

__all__ = ["Change", "MemoryStore", "Store"]
