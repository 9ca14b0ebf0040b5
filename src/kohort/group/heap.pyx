"""Deadlines: a map, and a leftist heap with the earliest on top. Both are immutable.

Older versions stay valid, so a snapshot of a machine costs nothing. The map has each key's due
time, and the time under which the heap has the key, which is never later. A heap node is a tuple of
a time, its key, its rank, and the two heaps below it, or None. This module is compiled because
every event of every machine sets or cancels a deadline.
"""


def put(due, heap, key, at):
    """Return map and heap with a key due at a time, which replaces any earlier due time.

    Postponing a deadline, as every heartbeat does, only changes the map: the heap keeps the earlier
    time, and is corrected when that reaches the top.
    """
    entry = due.get(key)
    if entry is not None and entry[1] <= at:
        return _settled(due.set(key, (at, entry[1])), heap)
    return _settled(due.set(key, (at, at)), _merged(heap, (at, key, 1, None, None)))


def drop(due, heap, key):
    """Return map and heap without a key, which must be present."""
    return _settled(due.delete(key), heap)


cdef _merged(a, b):
    """Merge two heaps; equal times are ordered by key."""
    if a is None:
        return b
    if b is None:
        return a
    return _both(<tuple>a, <tuple>b)


cdef tuple _both(tuple a, tuple b):
    cdef int left_rank, right_rank
    if b[0] < a[0] or (b[0] == a[0] and b[1] < a[1]):
        a, b = b, a
    left = a[3]
    right = b if a[4] is None else _both(<tuple>a[4], b)
    left_rank = 0 if left is None else left[2]
    right_rank = right[2]
    if left_rank < right_rank:
        left, right = right, left
        left_rank, right_rank = right_rank, left_rank
    return (a[0], a[1], right_rank + 1, left, right)


cdef tuple _settled(due, heap):
    """Clean up the top of the heap: drop cancelled keys, and move postponed ones down."""
    while heap is not None:
        key = heap[1]
        entry = due.get(key)
        if entry is not None and entry[0] == entry[1] == heap[0]:
            break
        rest = _merged(heap[3], heap[4])
        if entry is not None and entry[1] == heap[0]:
            rest = _merged(rest, (entry[0], key, 1, None, None))
            due = due.set(key, (entry[0], entry[0]))
        heap = rest
    return due, heap
