"""Deadlines: a map, and a leftist heap with the earliest on top. Neither is ever modified.

Older versions stay valid, which makes a snapshot of a machine free. The map has, for each key, when
it is due and the time under which the heap has it, which is never later. A node of the heap is a
tuple: a time, its key, its rank, and the two heaps below it, None where there is none. Every event
of every machine sets a deadline or cancels one, so this is compiled.
"""


def put(due, heap, key, at):
    """Return both with a key due at a time, replacing any earlier due time.

    Moving a deadline further out, which is what every heartbeat does, only writes the map: the heap
    keeps the earlier time, and is corrected when that reaches the top.
    """
    entry = due.get(key)
    if entry is not None and entry[1] <= at:
        return _settled(due.set(key, (at, entry[1])), heap)
    return _settled(due.set(key, (at, at)), _merged(heap, (at, key, 1, None, None)))


def drop(due, heap, key):
    """Return both without a key that is present."""
    return _settled(due.delete(key), heap)


cdef _merged(a, b):
    """Return the merged heap of two heaps; equal times are in the order of their keys."""
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
    """Clean up the top of the heap: drop cancelled keys, move down postponed ones."""
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
