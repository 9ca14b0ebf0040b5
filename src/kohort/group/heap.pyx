"""A leftist heap that is never changed: what is due, earliest first.

Older versions stay valid, which makes a snapshot of a machine free. A node is a tuple: when it is
due, its key, its rank, and the two heaps below it, None where there is none. Every event of every
machine sets a deadline or cancels one, so this is compiled.
"""


def merge(a, b):
    """Return the heap of the nodes of two heaps; equal times come in the order of their keys."""
    if a is None:
        return b
    if b is None:
        return a
    return _merged(<tuple>a, <tuple>b)


cdef tuple _merged(tuple a, tuple b):
    cdef int left_rank, right_rank
    if b[0] < a[0] or (b[0] == a[0] and b[1] < a[1]):
        a, b = b, a
    left = a[3]
    right = b if a[4] is None else _merged(<tuple>a[4], b)
    left_rank = 0 if left is None else left[2]
    right_rank = right[2]
    if left_rank < right_rank:
        left, right = right, left
        left_rank, right_rank = right_rank, left_rank
    return (a[0], a[1], right_rank + 1, left, right)


def settle(due, heap):
    """Make the top of a heap true: drop what was cancelled, move down what was put off.

    Args:
        due: For each key when it is due, and the time under which the heap has it, never later.
        heap: The heap.

    Returns:
        Both, changed where they had to be.
    """
    while heap is not None:
        key = heap[1]
        entry = due.get(key)
        if entry is not None and entry[0] == entry[1] == heap[0]:
            break
        rest = merge(heap[3], heap[4])
        if entry is not None and entry[1] == heap[0]:
            rest = merge(rest, (entry[0], key, 1, None, None))
            due = due.set(key, (entry[0], entry[0]))
        heap = rest
    return due, heap
