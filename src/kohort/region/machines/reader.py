"""Reads a region's log and determines when the fold of its records can be trusted.

Compaction may remove records at any time, including records that a reader has not read yet. So a
reader trusts its state only if it has folded every offset since the snapshot that it started from.
A gap means that records were removed; the log then has a newer snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from kohort.region.errors import (
    ForkedSnapshotError,
    LogGapError,
    NewerRecordError,
    RegionRecordError,
)
from kohort.region.machines import snapshot
from kohort.region.machines.coding import decode
from kohort.region.machines.fold import fold_in
from kohort.region.machines.records import Evict, OperatorId, RegionRecord, Snapshot, Trimmed
from kohort.region.machines.state import Fact, RegionState

Decode: TypeAlias = Callable[[bytes | None, bytes], RegionRecord]
_REMEMBERED = 5_000


class _Entry(Struct, frozen=True):
    """An entry of the log; `record` is None for a tombstone or a foreign record."""

    offset: int
    record: RegionRecord | None

    @property
    def begins(self) -> int:
        """Offset of the first record that it covers: a trim also covers its tombstones."""
        return self.offset - (self.record.count if isinstance(self.record, Trimmed) else 0)


class Reader:
    """Folds a log in offset order, and knows whether its state is correct.

    Pass everything that a fetch returns to `take`. Once everything before the end of the log has
    been taken, call `reach` with that end, which must be requested again each time.

    Attributes:
        position: Offset of the next record to take.
        evicted: Why operators were evicted, from the records read so far.
    """

    def __init__(self, decode: Decode = decode) -> None:
        """Create a reader that has read nothing.

        Args:
            decode: Returns the record of a key and a value.
        """
        self.position = 0
        self.evicted: dict[OperatorId, str] = {}
        self._decode = decode
        self._state = RegionState()
        self._is_trusted = False
        # Entries taken since the state was last trusted, and the snapshots among them.
        self._waiting: list[_Entry] = []
        self._best: tuple[int, RegionState] | None = None
        self._gap: int | None = None
        # States by offset, to compare snapshots with; and the entries of the log, by key.
        self._past: dict[int, RegionState] = {0: self._state}
        self._keys: dict[bytes, int] = {}

    @property
    def state(self) -> RegionState | None:
        """The fold of everything taken so far; None: not trusted yet, read on."""
        return self._state if self._is_trusted else None

    def removable(self, before: int) -> list[bytes]:
        """Return the keys of all records before an offset, oldest first.

        Their tombstones may be written once a snapshot of this offset is in the log.
        """
        return [key for key, offset in self._keys.items() if offset < before]

    def take(self, offset: int, key: bytes | None, value: bytes | None) -> tuple[Fact, ...]:
        """Read the entry at an offset.

        Args:
            offset: The offset; an offset taken before is ignored.
            key: Its key.
            value: Its value; None: a tombstone.

        Returns:
            The facts observed, if the state is trusted.

        Raises:
            NewerRecordError: A newer version wrote it; the reader cannot continue.
            ForkedSnapshotError: A snapshot is not the fold of the records before it.
        """
        if offset < self.position:
            return ()
        self.position = offset + 1
        self._note_key(offset, key, value)
        record, wrong = self._decoded(offset, key, value)
        if isinstance(record, Snapshot):
            wrong += self._look_at(offset, record)
            record = None if wrong else record
        entry = _Entry(offset, record)
        if self._is_trusted and entry.begins <= self._state.offset:
            return wrong + self._fold(entry)
        self._is_trusted = False
        self._waiting.append(entry)
        return wrong

    def reach(self, end: int) -> tuple[Fact, ...]:
        """Report that everything before the end of the log was taken.

        Args:
            end: The current end, as reported by the broker.

        Returns:
            The observed facts if the state is now trusted; otherwise none, continue reading.

        Raises:
            LogGapError: Records are missing that no snapshot covers.
        """
        self.position = max(self.position, end)
        if self._is_trusted and self._state.offset >= end:
            return ()
        self._is_trusted = False
        start = self._first()
        gap = self._first_gap(start.offset, end)
        if gap is not None:
            if gap == self._gap:
                raise LogGapError(
                    f"the log is missing its record at offset {gap}, and has no newer snapshot than"
                    f" the one before {start.offset}: records were deleted"
                )
            self._gap = gap
            return ()
        return self._restart(start)

    # ------------------------------------------------------------------------------------- folding

    def _first(self) -> RegionState:
        """Return the newest state to start from: a snapshot's, or the last trusted one."""
        if self._best is not None and self._best[0] > self._state.offset:
            return self._best[1]
        return self._state

    def _first_gap(self, start: int, end: int) -> int | None:
        """Return the first missing offset from `start`."""
        spans = sorted((each.begins, each.offset + 1) for each in self._waiting)
        for begins, ends in spans:
            if ends <= start:
                continue
            if begins > start:
                return start
            start = ends
        return start if start < end else None

    def _restart(self, start: RegionState) -> tuple[Fact, ...]:
        waiting, self._waiting = self._waiting, []
        if start is not self._state:
            self._past.clear()
        self._state, self._is_trusted, self._best, self._gap = start, True, None, None
        self._past[start.offset] = start
        facts: list[Fact] = []
        for each in waiting:
            if each.offset >= start.offset:
                facts += self._fold(each)
        return tuple(facts)

    def _fold(self, entry: _Entry) -> tuple[Fact, ...]:
        record = entry.record
        if isinstance(record, Snapshot):
            self._compare(entry.offset, record)
        self._state, facts = fold_in(self._state, entry.offset, record)
        if isinstance(record, Evict) and not any(each.is_refused for each in facts):
            self.evicted[record.operator] = record.why
        self._past[self._state.offset] = self._state
        while len(self._past) > _REMEMBERED:
            del self._past[next(iter(self._past))]
        return facts

    def _look_at(self, offset: int, record: Snapshot) -> tuple[Fact, ...]:
        """Keep the newest snapshot in case this reader falls behind; report invalid ones."""
        if snapshot.digest(record.state) != record.digest:
            return (_passed(offset, "the snapshot does not have the digest that it names"),)
        try:
            state = snapshot.load(record.state)
        except RegionRecordError as error:
            return (_passed(offset, str(error)),)
        if state.offset != record.before:
            return (_passed(offset, "the snapshot belongs to another offset than it names"),)
        if self._best is None or self._best[0] < record.before:
            self._best = record.before, state
        return ()

    def _compare(self, offset: int, record: Snapshot) -> None:
        own = self._past.get(record.before)
        if own is not None and snapshot.digest(snapshot.dump(own)) != record.digest:
            raise ForkedSnapshotError(
                f"the snapshot at offset {offset}, by {record.incarnation} of epoch {record.epoch},"
                f" is not what the records before {record.before} fold to"
            )

    def _decoded(
        self, offset: int, key: bytes | None, value: bytes | None
    ) -> tuple[RegionRecord | None, tuple[Fact, ...]]:
        if value is None:
            return None, ()
        try:
            return self._decode(key, value), ()
        except NewerRecordError:
            raise
        except RegionRecordError as error:
            return None, (_passed(offset, str(error)),)

    def _note_key(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            return
        self._keys.pop(key, None)
        if value is not None:
            self._keys[key] = offset


def _passed(offset: int, why: str) -> Fact:
    return Fact(offset, "no record of a region", why, is_refused=True)
