"""The key-value store of a task: the common part of all kinds of stores.

A store has three layers. Changes since the last call of `changes` are *new*; those that `changes`
has returned but `flush` has not written are *drained*; everything else is in the backend, on disk
or in memory. So if the caller keeps this order, the backend only has changes that the changelog
topic has acknowledged:

1. `changes` returns the changes for the changelog topic;
2. the topic acknowledges them;
3. `flush` writes exactly these to the backend; later changes stay new.

After a crash the backend is then a prefix of the changelog, which only needs to be replayed from
the checkpoint. A store is not thread-safe: only one task uses it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from heapq import merge
from operator import itemgetter
from typing import TypeAlias

from kohort.errors import LocalProtocolError

Change: TypeAlias = tuple[bytes, bytes | None]
"""A key and its value, or None if the key was deleted."""

_FIRST = itemgetter(0)


class Store(ABC):
    """A key-value store: bytes to bytes, in key order.

    Attributes:
        name: Its name in the program.
        is_persistent: Whether flushed state survives a restart of the process.
    """

    is_persistent = False

    def __init__(self, name: str) -> None:
        self.name = name
        self._new: dict[bytes, bytes | None] = {}
        self._drained: dict[bytes, bytes | None] = {}
        # the previous entry of `_new` for each key changed since `begin`; () if it had none
        self._undo: list[tuple[bytes, bytes | tuple[()] | None]] = []

    # ----------------------------------------------------------------------------------- for tasks

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None if it has none."""
        if key in self._new:
            return self._new[key]
        if key in self._drained:
            return self._drained[key]
        return self._read(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key.

        Raises:
            TypeError: Key or value are not bytes.
        """
        if type(key) is not bytes or type(value) is not bytes:
            raise TypeError(
                f"store {self.name} takes bytes, not {type(key).__name__} and"
                f" {type(value).__name__}"
            )
        self._set(key, value)

    def delete(self, key: bytes) -> None:
        """Remove a key, if it exists.

        Raises:
            TypeError: The key is not bytes.
        """
        if type(key) is not bytes:
            raise TypeError(f"store {self.name} takes bytes, not {type(key).__name__}")
        self._set(key, None)

    def items(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Return keys that start with a prefix, and their values, in key order.

        Later changes do not affect the iterator.
        """
        return self.scan(prefix, _after_prefix(prefix))

    def scan(self, low: bytes = b"", high: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Return the keys from `low` up to but not including `high`, with values, in key order.

        Args:
            low: The lowest key.
            high: The first key after the range; None: no limit.
        """
        over = {
            key: value
            for layer in (self._drained, self._new)
            for key, value in layer.items()
            if key >= low and (high is None or key < high)
        }
        below = self._scan(low, high)
        return _merged(below, over) if over else below

    @property
    def count(self) -> int:
        """Count the keys; reads all of them, so it is for tests and manual inspection."""
        return sum(1 for _ in self.scan())

    def begin(self) -> None:
        """Start recording changes so that `undo` can revert them."""
        self._undo.clear()

    def undo(self) -> None:
        """Undo everything since `begin`; do not call `changes` or `restore` in between."""
        for key, before in reversed(self._undo):
            if isinstance(before, tuple):
                del self._new[key]
            else:
                self._new[key] = before
        self._undo.clear()

    # ----------------------------------------------------------------------------- for the runtime

    @property
    def pending(self) -> int:
        """Number of keys that are only in memory, to decide when a flush is due."""
        return len(self._new) + len(self._drained)

    def changes(self) -> list[Change]:
        """Return the changes since the last call, with the last value of each key.

        Send them to the changelog topic, and call `flush` after the topic has acknowledged them.
        """
        self._undo.clear()
        drained = list(self._new.items())
        self._drained.update(self._new)
        self._new.clear()
        return drained

    def flush(self) -> None:
        """Durably write the changes that `changes` returned, and restored records.

        Later changes stay in memory. An error loses nothing: the call may be repeated.

        Raises:
            StateDiskFullError: The disk is full.
            StateError: The backend cannot write.
        """
        self._write(self._drained)
        self._drained.clear()

    def restore(self, changes: Iterable[Change]) -> None:
        """Apply part of the changelog; None deletes. `changes` returns none of it.

        It is durable after the next `flush`.

        Raises:
            LocalProtocolError: There are unflushed changes.
            StateError: The backend cannot write.
        """
        if self._new or self._drained:
            raise LocalProtocolError(
                f"store {self.name} has {self.pending} changes that are not flushed; a changelog"
                " is replayed before the task processes records"
            )
        self._load(changes)

    @abstractmethod
    def close(self) -> None:
        """Release files and memory; unflushed changes are dropped, but the changelog has them."""

    # -------------------------------------------------------------------------------- the backend

    @abstractmethod
    def _read(self, key: bytes) -> bytes | None: ...

    @abstractmethod
    def _scan(self, low: bytes, high: bytes | None) -> Iterator[tuple[bytes, bytes]]: ...

    @abstractmethod
    def _write(self, changes: dict[bytes, bytes | None]) -> None: ...

    @abstractmethod
    def _load(self, changes: Iterable[Change]) -> None: ...

    def _set(self, key: bytes, value: bytes | None) -> None:
        new = self._new
        self._undo.append((key, new.get(key, ())))
        new[key] = value


def _after_prefix(prefix: bytes) -> bytes | None:
    """Return the first key after all keys with a prefix; None if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _merged(
    below: Iterator[tuple[bytes, bytes]], over: dict[bytes, bytes | None]
) -> Iterator[tuple[bytes, bytes]]:
    """Return the backend's items, overlaid with those in memory."""
    kept = (item for item in below if item[0] not in over)
    found = [(key, value) for key, value in sorted(over.items()) if value is not None]
    return merge(kept, found, key=_FIRST)
