"""A store in memory: for tests, and for state that is small enough to restore at each start."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from kohort.streams.errors import StoreClosedError
from kohort.streams.stores.store import Change, Store


class MemoryStore(Store):
    """A store backed by a dictionary; a new process restores all of it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] | None = []  # in order; None: must be sorted again
        self._is_closed = False

    def close(self) -> None:
        """Drop everything."""
        self._is_closed = True
        for layer in (self._new, self._drained, self._values):
            layer.clear()
        self._keys = []

    def _read(self, key: bytes) -> bytes | None:
        self._check()
        return self._values.get(key)

    def _scan(self, low: bytes, high: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        self._check()
        if self._keys is None:
            self._keys = sorted(self._values)
        keys, values = self._keys, self._values
        end = len(keys) if high is None else bisect_left(keys, high)
        return iter([(key, values[key]) for key in keys[bisect_left(keys, low) : end]])

    def _write(self, changes: dict[bytes, bytes | None]) -> None:
        self._load(changes.items())

    def _load(self, changes: Iterable[Change]) -> None:
        self._check()
        values = self._values
        for key, value in changes:
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        # Overwritten keys keep their order, but checking that takes as long as sorting again, which
        # is linear for nearly sorted keys.
        self._keys = None

    def _check(self) -> None:
        if self._is_closed:
            raise StoreClosedError(f"store {self.name} is closed")
