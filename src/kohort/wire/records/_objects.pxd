from libc.stdint cimport int64_t, uint8_t

cdef class RecordWriter:
    cdef uint8_t* _data
    cdef Py_ssize_t _capacity
    cdef readonly Py_ssize_t size
    cdef readonly int64_t count
    cdef readonly int64_t base_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp

    # `encoded` has header names and values alternately; None means no headers.
    cdef int write(
        self, int64_t timestamp, int64_t offset, bytes key, bytes value, list encoded
    ) except -1
    cdef int _reserve(self, Py_ssize_t more) except -1

cdef bytes as_bytes(data)
cdef list encoded_headers(headers)
