# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Whether bytes are the records that a producer may send: nothing is made of them.

A broker that stored anything else would hand it to every reader of the partition.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t

from kohort.wire.records._varint cimport read_varint


def flaw(records, int64_t count, bint keyed):
    """Return what is wrong with records, None where nothing is; see the stub."""
    cdef Py_buffer view
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        return find_flaw(<const uint8_t*>view.buf, view.len, count, keyed)
    finally:
        PyBuffer_Release(&view)


cdef str find_flaw(const uint8_t* at, int64_t size, int64_t count, bint keyed):
    cdef const uint8_t* end = at + size
    cdef int64_t length, index
    cdef str found
    for index in range(count):
        at = read_varint(at, end, 32, &length)
        if at == NULL or length < 1 or length > end - at:
            return f"record {index} has no length, or one that does not fit"
        found = flaw_of_record(at + 1, at + length, index, keyed)  # after the unused attributes
        if found is not None:
            return found
        at += length
    return None if at == end else f"there are bytes after the {count} records"


cdef str flaw_of_record(const uint8_t* at, const uint8_t* end, int64_t index, bint keyed):
    cdef int64_t number, headers
    at = read_varint(at, end, 64, &number)
    if at == NULL:
        return f"record {index} has no timestamp"
    at = read_varint(at, end, 32, &number)
    if at == NULL or number != index:
        return f"record {index} has another offset"
    at = after_bytes(at, end, &number)
    if at == NULL:
        return f"the key of record {index} does not fit"
    if keyed and number < 0:
        return f"record {index} has no key, which a compacted topic demands"
    at = after_bytes(at, end, &number)
    if at == NULL:
        return f"the value of record {index} does not fit"
    at = read_varint(at, end, 32, &headers)
    if at == NULL or headers < 0 or headers > (end - at) // 2:
        return f"the headers of record {index} cannot be counted"
    for _ in range(headers):
        at = after_bytes(at, end, &number)
        if at == NULL or number < 0:
            return f"a header's name of record {index} does not fit"
        at = after_bytes(at, end, &number)
        if at == NULL:
            return f"a header of record {index} does not fit"
    return None if at == end else f"there are bytes after record {index}"


cdef const uint8_t* after_bytes(const uint8_t* at, const uint8_t* end, int64_t* size) noexcept:
    """Return what follows a length and so many bytes; a negative length means null."""
    at = read_varint(at, end, 32, size)
    if at == NULL or size[0] > end - at:
        return NULL
    return at + size[0] if size[0] > 0 else at
