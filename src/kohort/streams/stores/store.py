"""The key-value store of a task: what every kind of store has in common.

A store has three layers. What was put since the last `changes` is *new*; what `changes` gave and no
`flush` has written yet is *drained*; everything else is in the backend, on disk or in memory. So
the backend never has what the changelog topic has not acknowledged, if the caller keeps this order:

1. `changes` gives what goes to the changelog topic;
2. the topic acknowledges it;
3. `flush` writes just that to the backend; what came meanwhile stays new.

After a crash the backend is then a prefix of the changelog, which only has to be replayed from the
checkpoint on. A store is not thread-safe: one task uses it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from heapq import merge
from operator import itemgetter
from typing import TypeAlias

from kohort.errors import LocalProtocolError

Change: TypeAlias = tuple[bytes, bytes | None]
"""A key and its value, None where the key was deleted."""

_FIRST = itemgetter(0)


class Store(ABC):
    """A key-value store: bytes to bytes, in the order of keys.

    Attributes:
        name: Its name in the program.
        is_persistent: Whether what was flushed is still there when the process starts again.
    """

    is_persistent = False

    def __init__(self, name: str) -> None:
        self.name = name
        self._new: dict[bytes, bytes | None] = {}
        self._drained: dict[bytes, bytes | None] = {}
        # what `_new` had of each key that was changed since `begin`; () for nothing
        self._undo: list[tuple[bytes, bytes | tuple[()] | None]] = []

    # ---------------------------------------------------------------------------- what tasks use

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None without one."""
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
        """Remove a key; one that is not there is no error.

        Raises:
            TypeError: The key is not bytes.
        """
        if type(key) is not bytes:
            raise TypeError(f"store {self.name} takes bytes, not {type(key).__name__}")
        self._set(key, None)

    def items(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Return keys that begin with a prefix, and their values, in order of keys.

        What is changed while the iterator is used does not change what it returns.
        """
        return self.scan(prefix, _after_prefix(prefix))

    def scan(self, low: bytes = b"", high: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Return the keys from `low` on and below `high`, and their values, in order of keys.

        Args:
            low: The lowest key.
            high: The first key that is not wanted; None for all to the end.
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
        """How many keys there are; reads all of them, so it is for tests and for people."""
        return sum(1 for _ in self.scan())

    def begin(self) -> None:
        """Remember how things are, for `undo`."""
        self._undo.clear()

    def undo(self) -> None:
        """Take back everything since `begin`; neither `changes` nor `restore` may come between."""
        for key, before in reversed(self._undo):
            if isinstance(before, tuple):
                del self._new[key]
            else:
                self._new[key] = before
        self._undo.clear()

    # ---------------------------------------------------------------------- what the runtime uses

    @property
    def pending(self) -> int:
        """How many keys are in memory only: a flush is due before that takes too much of it."""
        return len(self._new) + len(self._drained)

    def changes(self) -> list[Change]:
        """Return what changed since the last call, with the last value of each key.

        It goes to the changelog topic; `flush` comes after the topic acknowledged it.
        """
        self._undo.clear()
        drained = list(self._new.items())
        self._drained.update(self._new)
        self._new.clear()
        return drained

    def flush(self) -> None:
        """Write durably what `changes` returned, and what was restored.

        What has not been drained yet stays in memory. After an error nothing is forgotten: the
        same may be tried again.

        Raises:
            StateDiskFullError: The disk is full.
            StateError: The backend cannot write.
        """
        self._write(self._drained)
        self._drained.clear()

    def restore(self, changes: Iterable[Change]) -> None:
        """Apply a part of the changelog; None deletes. None of it appears in `changes`.

        It is durable after the next `flush`.

        Raises:
            LocalProtocolError: There are changes that are not flushed.
            StateError: As `flush`.
        """
        if self._new or self._drained:
            raise LocalProtocolError(
                f"store {self.name} has {self.pending} changes that are not flushed; a changelog"
                " is replayed before the task processes records"
            )
        self._load(changes)

    @abstractmethod
    def close(self) -> None:
        """Release files and memory; what is not flushed is dropped, the changelog repeats it."""

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
    """Return the first key after all keys with a prefix; None if there is no such key."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _merged(
    below: Iterator[tuple[bytes, bytes]], over: dict[bytes, bytes | None]
) -> Iterator[tuple[bytes, bytes]]:
    """Return items of the backend and, over them, those in memory."""
    kept = (item for item in below if item[0] not in over)
    found = [(key, value) for key, value in sorted(over.items()) if value is not None]
    return merge(kept, found, key=_FIRST)
