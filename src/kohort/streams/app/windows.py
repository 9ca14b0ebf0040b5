"""Tumbling windows by the timestamps of records.

The *stream time* of a step is the highest timestamp it has seen in its task. A window [start, start
+ size) closes when stream time reaches start + size + grace: later records for it are skipped,
counted and logged, and its state is deleted. Stream time is part of the state, so a task keeps its
windows when it moves.

    b"t"                    stream time
    b"w" START KEY          state of a window; START has 8 bytes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from kohort.streams.app.serdes import Serde
from kohort.streams.app.steps import (
    DROPPED,
    LATE,
    NULL_KEY,
    NULL_VALUE,
    AnySerde,
    Anything,
    Bound,
    Function,
    Item,
    Items,
    Run,
    Storing,
    View,
)
from kohort.streams.stores.store import Store

K = TypeVar("K")

_TIME = b"t"
_WINDOW = b"w"


class WindowedKey(NamedTuple, Generic[K]):
    """A key in one window.

    Attributes:
        key: The key.
        start_ms: Start of the window, in milliseconds since the epoch.
        end_ms: The first millisecond after the window.
    """

    key: K
    start_ms: int
    end_ms: int


def windowed_serde(key: Serde[K], size_ms: int) -> Serde[WindowedKey[K]]:
    """Return the serde of windowed keys: the bytes of the key, then 8 bytes of window start.

    The format is that of Kafka Streams' `TimeWindowedSerializer`.
    """

    def serialize(windowed: WindowedKey[K]) -> bytes:
        return key.serialize(windowed.key) + _start_bytes(windowed.start_ms)

    def deserialize(data: bytes) -> WindowedKey[K]:
        if len(data) < 8:
            raise ValueError(f"a key in a window has at least 8 bytes, not {len(data)}")
        start = int.from_bytes(data[-8:], "big")
        return WindowedKey(key.deserialize(data[:-8]), start, start + size_ms)

    return Serde(f"windowed({key.name}, {size_ms})", serialize, deserialize)


class Span(Struct, frozen=True):
    """A division of time into windows.

    Attributes:
        size_ms: Length of a window in milliseconds.
        grace_ms: Milliseconds after its end for which a window still accepts records.
        is_final: Whether a window emits one result when it closes, instead of one for each change.
    """

    size_ms: int
    grace_ms: int
    is_final: bool


class AggregateWindows(Storing, frozen=True, kw_only=True):
    """Folds the values of each key in each window."""

    inner: AnySerde
    initial: Callable[[], Anything]
    function: Function
    span: Span

    def bind(self, run: Run) -> Bound:
        """Find the window, fold, and close expired windows."""
        return _Windows(self, run).bound()

    def describe(self) -> list[object]:
        """Return everything that must be equal, with the span as numbers."""
        span = self.span
        times = [span.size_ms, span.grace_ms, span.is_final]
        serdes = [self.inner.name, self.key.name, self.value.name]
        return ["AggregateWindows", self.number, self.name, self.parents, *serdes, times]

    def get(self, store: Store, key: Anything) -> Anything:
        """Return the state of a `WindowedKey`, or None if it has none."""
        found = store.get(_WINDOW + _start_bytes(key.start_ms) + self.inner.serialize(key.key))
        return None if found is None else self.value.deserialize(found)

    def partition_key(self, key: Anything) -> bytes:
        """Return the bytes of the key without its window, as in the records."""
        return self.inner.serialize(key.key)

    def items(self, store: Store) -> Iterator[tuple[Anything, Anything]]:
        """Return all open windows with their states, ordered by start."""
        return (
            (self.key_at(place), self.value.deserialize(state))
            for place, state in store.items(_WINDOW)
        )

    def key_at(self, place: bytes) -> WindowedKey[Anything]:
        """Return the windowed key of an entry of the store."""
        start = int.from_bytes(place[1:9], "big")
        return WindowedKey(self.inner.deserialize(place[9:]), start, start + self.span.size_ms)


class _Windows:
    """The windows of one step in one task; all their state is in the store."""

    def __init__(self, step: AggregateWindows, run: Run) -> None:
        self._step = step
        self._span = step.span
        self._run = run
        self._view: View = step.reference.view(run)
        self._store = self._view.store

    def bound(self) -> Bound:
        return Bound(self.call, self.finish)

    def call(self, key: Anything, value: Anything, time: int) -> Anything:
        step = self._step
        if key is None or value is None:
            self._run.drop(step.name, NULL_KEY if key is None else NULL_VALUE)
            return DROPPED
        if time < 0:
            raise ValueError("the record has no timestamp, so it is in no window")
        if self._start(time) < self._first_open(self._stream_time()):
            self._run.drop(step.name, LATE)
            return DROPPED
        state = self._view.get(self._place(key, time))
        return step.function(step.initial() if state is None else state, value)

    def finish(self, key: Anything, _: Anything, time: int, state: Anything) -> Items:
        if state is DROPPED:
            return ()
        self._view.set(self._place(key, time), state)
        closed = self._advance(time)
        if self._span.is_final:
            return closed
        start = self._start(time)
        return ((WindowedKey(key, start, start + self._span.size_ms), state, time),)

    def _advance(self, time: int) -> list[Item]:
        """Advance stream time; return the windows that this closes."""
        before = self._stream_time()
        if time <= before:
            return []
        self._store.put(_TIME, _start_bytes(time))
        old, new = self._first_open(before), self._first_open(time)
        if new == old:
            return []
        low, high = _WINDOW, _WINDOW + _start_bytes(new)
        return [self._close(place, state) for place, state in self._store.scan(low, high)]

    def _close(self, place: bytes, state: bytes) -> Item:
        self._store.delete(place)
        key = self._step.key_at(place)
        return key, self._step.value.deserialize(state), key.end_ms - 1

    def _place(self, key: Anything, time: int) -> bytes:
        return _WINDOW + _start_bytes(self._start(time)) + self._step.inner.serialize(key)

    def _start(self, time: int) -> int:
        return time - time % self._span.size_ms

    def _first_open(self, time: int) -> int:
        """Return the start of the first window that is still open at a stream time."""
        return max(0, self._start(time - self._span.grace_ms))

    def _stream_time(self) -> int:
        found = self._store.get(_TIME)
        return 0 if found is None else int.from_bytes(found, "big")


def _start_bytes(time: int) -> bytes:
    return time.to_bytes(8, "big")
