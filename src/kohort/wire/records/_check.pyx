# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Validates a producer's records without decoding them into objects.

Invalid records must not be stored, as the broker would pass them to every reader.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t

from kohort.wire.records._varint cimport read_varint


def flaw(records, int64_t count):
    """Return why records are invalid, or None if they are valid; see the stub."""
    cdef Py_buffer view
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        return find_flaw(<const uint8_t*>view.buf, view.len, count)
    finally:
        PyBuffer_Release(&view)


cdef str find_flaw(const uint8_t* at, int64_t size, int64_t count):
    cdef const uint8_t* end = at + size
    cdef int64_t length, index
    cdef str found
    for index in range(count):
        at = read_varint(at, end, 32, &length)
        if at == NULL or length < 1 or length > end - at:
            return f"record {index} has no length, or one that does not fit"
        found = flaw_of_record(at + 1, at + length, index)  # skips the unused attributes
        if found is not None:
            return found
        at += length
    return None if at == end else f"there are bytes after the {count} records"


cdef str flaw_of_record(const uint8_t* at, const uint8_t* end, int64_t index):
    cdef int64_t number, headers
    at = read_varint(at, end, 64, &number)
    if at == NULL:
        return f"record {index} has no timestamp"
    at = read_varint(at, end, 32, &number)
    if at == NULL or number != index:
        return f"record {index} has an unexpected offset"
    at = after_bytes(at, end, &number)
    if at == NULL:
        return f"the key of record {index} does not fit"
    at = after_bytes(at, end, &number)
    if at == NULL:
        return f"the value of record {index} does not fit"
    at = read_varint(at, end, 32, &headers)
    if at == NULL or headers < 0 or headers > (end - at) // 2:
        return f"record {index} has no valid number of headers"
    for _ in range(headers):
        at = after_bytes(at, end, &number)
        if at == NULL or number < 0:
            return f"a header name of record {index} does not fit"
        at = after_bytes(at, end, &number)
        if at == NULL:
            return f"a header of record {index} does not fit"
    return None if at == end else f"there are bytes after record {index}"


def refused(records, int64_t count, bint keyed, int64_t latest, int64_t most):
    """Return the valid records that a topic refuses; see the stub."""
    cdef Py_buffer view
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        return find_refused(<const uint8_t*>view.buf, view.len, count, keyed, latest, most)
    finally:
        PyBuffer_Release(&view)


cdef tuple find_refused(
    const uint8_t* at, int64_t size, int64_t count, bint keyed, int64_t latest, int64_t most
):
    cdef const uint8_t* end = at + size
    cdef const uint8_t* field
    cdef int64_t length, index, stamp, number, total = 0
    cdef list first = []
    for index in range(count):
        at = read_varint(at, end, 32, &length)
        if at == NULL or length < 1 or length > end - at:
            break
        field = read_varint(at + 1, at + length, 64, &stamp)
        if field != NULL:
            field = read_varint(field, at + length, 32, &number)
        if field == NULL or read_varint(field, at + length, 32, &number) == NULL:
            break
        if stamp > latest or (keyed and number < 0):
            total += 1
            if total <= most:
                first.append(index)
        at += length
    return total, first


cdef const uint8_t* after_bytes(const uint8_t* at, const uint8_t* end, int64_t* size) noexcept:
    """Return the position after a length and its bytes; a negative length means null."""
    at = read_varint(at, end, 32, size)
    if at == NULL or size[0] > end - at:
        return NULL
    return at + size[0] if size[0] > 0 else at
