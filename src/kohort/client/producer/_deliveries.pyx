# cython: language_level=3
"""The outcome of a batch, and of each record in it.

The outcome is stored once, for the batch. A record knows its index in the batch and computes its
own outcome on demand, so a record whose outcome is never requested costs nothing.

The only lock is the interpreter's: no Python code runs between a check of `known` and the action
that depends on it.
"""

import os

from libc.stdint cimport int64_t

from kohort.client.producer.delivery import RecordMetadata

cdef object _make = tuple.__new__
cdef int _forks = 0


def _note_fork():
    global _forks
    _forks += 1


def forks():
    """Return how often this process and its ancestors were forked, counted in the child."""
    return _forks


os.register_at_fork(after_in_child=_note_fork)


cdef class Fate:
    """The outcome of a batch, stored once for all its records."""

    def __cinit__(self, str topic, int partition):
        self.topic = topic
        self.partition = partition
        self._forks = _forks

    def delivered(self, int64_t base_offset, int64_t append_time):
        """Set the outcome: the batch was written. Return the watchers of its records.

        Args:
            base_offset: Offset of the first record; -1 if the broker did not return it.
            append_time: Milliseconds since the epoch; -1 to keep the records' own timestamps.
        """
        self._base_offset = base_offset
        self._append_time = append_time
        return self._settle()

    def failed(self, error, dict reasons=None):
        """Set the outcome: the batch has failed. Return the watchers of its records.

        Args:
            error: The error.
            reasons: Errors of single records, by index in the batch.
        """
        self._error = error
        self._reasons = reasons
        return self._settle()

    @property
    def is_settled(self):
        """Whether the outcome is known, for a divided batch that of all parts."""
        cdef Fate part
        if self._parts is None:
            return self.known
        for _, part in self._parts:
            if not part.is_settled:
                return False
        return True

    cdef list _settle(self):
        if self.known or self._parts is not None:
            raise AssertionError("the outcome of a batch must be set only once")
        self.known = True
        told = self._watchers
        self._watchers = None
        return [] if told is None else told

    def cut(self, counts):
        """Create the `Fate` of each part of a batch, given the parts' record counts."""
        return [Fate(self.topic, self.partition) for _ in counts]

    def divide(self, list parts):
        """Move the records to the batches that this one was divided into.

        Args:
            parts: The parts in order, each with the index of its first record in this batch.
        """
        cdef Delivery delivery
        cdef Fate part
        if self.known or self._parts is not None:
            raise AssertionError("the outcome of a batch must be set only once")
        told = self._watchers
        self._watchers = None
        self._parts = parts
        for delivery, future in told or ():
            part = delivery._current()
            if part._watchers is None:
                part._watchers = []
            part._watchers.append((delivery, future))


cdef class Delivery:
    """A record being sent; created only by `OpenBatches.add`."""

    cdef Fate _current(self):
        """Return the outcome's current place: that of the part that has the record."""
        cdef Fate part
        cdef int64_t first
        if self._fate is None:
            raise RuntimeError("this record is in no batch")
        while self._fate._parts is not None:
            for start, candidate in reversed(self._fate._parts):
                first = start
                if first <= self._index:
                    part = candidate
                    self._index -= first
                    self._fate = part
                    break
        return self._fate

    def outcome(self):
        """Return the record's metadata or its error; None while the outcome is unknown."""
        cdef Fate fate = self._current()
        if not fate.known:
            return None
        if fate._error is not None:
            if fate._reasons is None:
                return fate._error
            return fate._reasons.get(self._index, fate._error)
        offset = -1 if fate._base_offset < 0 else fate._base_offset + self._index
        when = self._timestamp if fate._append_time < 0 else fate._append_time
        return _make(RecordMetadata, (fate.topic, fate.partition, offset, when))

    def is_of_parent(self):
        """Return whether it was sent before this process was forked: here it never completes."""
        return self._fate is not None and self._fate._forks != _forks

    def watch(self, future):
        """Have a future completed with the outcome; return False if that is known already."""
        # Creating these may let another thread run, so the check comes after it.
        entry = (self, future)
        fresh = []
        cdef Fate fate = self._current()
        if fate.known:
            return False
        if fate._watchers is None:
            fate._watchers = fresh
        fate._watchers.append(entry)
        return True

    def adopt(self, dict own, dict state, settled, future):
        """Give a future its state, unless it has one, and have it completed.

        All this is a single step. If another thread was first, its state stays.

        Args:
            own: The dictionary of the future.
            state: The entries to add.
            settled: Whether the state contains the outcome.
            future: The future.

        Returns:
            False if the state lacks an outcome that is known now: create it again.
        """
        cdef Fate fate
        entry = (self, future)
        fresh = []
        fate = self._current()
        if self.is_watched:
            return True
        if not settled:
            if fate.known:
                return False
            if fate._watchers is None:
                fate._watchers = fresh
            fate._watchers.append(entry)
        self.is_watched = True
        own.update(state)
        return True
