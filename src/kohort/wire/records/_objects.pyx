# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Encodes and decodes the records of a batch, from and to objects.

A record consists of: length, attributes (unused), timestamp delta, offset delta, key, value,
headers. All numbers are varints; a negative length of a key or value means null, as in Kafka.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyTypeObject
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.ref cimport Py_INCREF
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from kohort.wire.records._crc32c cimport crc32c_extend
from kohort.wire.records._varint cimport read_varint, varint_size, write_varint

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.wire.records.record import Record

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char* text, Py_ssize_t size, const char* errors)
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    object PyType_GenericAlloc(PyTypeObject* kind, Py_ssize_t size)
    void PyObject_GC_UnTrack(object instance)

cdef extern from *:
    bint __builtin_add_overflow(int64_t a, int64_t b, int64_t* result) noexcept nogil
    bint __builtin_sub_overflow(int64_t a, int64_t b, int64_t* result) noexcept nogil


cdef enum:
    _LENGTH_END = 12  # a batch's length counts from here
    _CRC_END = 21
    _MAGIC = 2


cdef inline void _write_number(uint8_t* out, int64_t value, int size) noexcept nogil:
    """Write the low bytes of a number, most significant first."""
    cdef int at
    for at in range(size):
        out[at] = <uint8_t>(value >> (8 * (size - 1 - at)))


cdef class RecordWriter:
    """Writes records consecutively into the records part of a batch."""

    def __cinit__(self):
        self.base_timestamp = -1
        self.max_timestamp = -1
        self.last_offset = -1

    def __dealloc__(self):
        free(self._data)

    def append(self, int64_t timestamp, key, value, headers=(), offset=None):
        """Append a record, by default with the next offset."""
        cdef int64_t at = self.last_offset + 1 if offset is None else offset
        self.write(timestamp, at, as_bytes(key), as_bytes(value), encoded_headers(headers))

    cdef int write(
        self, int64_t timestamp, int64_t offset, bytes key, bytes value, list encoded
    ) except -1:
        """Append a record without running Python code, unless it raises an error."""
        cdef int64_t base = offset if self.count == 0 else self.base_offset
        cdef int64_t first = timestamp if self.count == 0 else self.base_timestamp
        cdef int64_t offset_delta = offset - base
        cdef int64_t timestamp_delta
        if offset < 0 or offset_delta < 0 or offset_delta > INT32_MAX or (
            self.count > 0 and offset <= self.last_offset
        ):
            raise LocalProtocolError(f"offset {offset} cannot follow {self.last_offset} in a batch")
        if __builtin_sub_overflow(timestamp, first, &timestamp_delta):
            raise LocalProtocolError(f"timestamp {timestamp} is too far from the batch's first")
        cdef int64_t names = 0 if encoded is None else len(encoded) // 2
        cdef int64_t body = (
            1 + varint_size(timestamp_delta) + varint_size(offset_delta)
            + _bytes_size(key) + _bytes_size(value) + varint_size(names)
        )
        if names:
            for item in encoded:
                body += _bytes_size(item)
        if body > INT32_MAX - self.size - 64:
            raise LocalProtocolError(f"record of {body} bytes does not fit into its batch")
        self._reserve(varint_size(body) + body)
        cdef uint8_t* out = write_varint(self._data + self.size, body)
        out[0] = 0
        out = write_varint(out + 1, timestamp_delta)
        out = write_varint(out, offset_delta)
        out = _write_bytes(out, key)
        out = _write_bytes(out, value)
        out = write_varint(out, names)
        if names:
            for item in encoded:
                out = _write_bytes(out, item)
        self.size = out - self._data
        if self.count == 0:
            self.base_offset = base
            self.base_timestamp = first
        if self.count == 0 or timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.count += 1
        self.last_offset = offset
        return 0

    def records(self):
        """Return the bytes written so far."""
        return PyBytes_FromStringAndSize(<const char*>self._data, self.size)

    def assemble(self, int32_t leader_epoch, bytes head, bytes compressed=None):
        """Return the whole batch; copies and computes the CRC without the interpreter's lock.

        Args:
            leader_epoch: Leader epoch of the batch.
            head: The header, starting with the attributes.
            compressed: The compressed records; None to leave them uncompressed.
        """
        cdef const uint8_t* source = self._data
        cdef Py_ssize_t size = self.size
        if compressed is not None:
            source = <const uint8_t*>PyBytes_AS_STRING(compressed)
            size = PyBytes_GET_SIZE(compressed)
        cdef Py_ssize_t middle = PyBytes_GET_SIZE(head)
        cdef const uint8_t* given = <const uint8_t*>PyBytes_AS_STRING(head)
        if size > INT32_MAX - 128:
            raise LocalProtocolError(f"records of {size} bytes do not fit into one batch")
        cdef bytes whole = PyBytes_FromStringAndSize(NULL, _CRC_END + middle + size)
        cdef uint8_t* out = <uint8_t*>PyBytes_AS_STRING(whole)
        with nogil:
            _write_number(out, self.base_offset, 8)
            _write_number(out + 8, _CRC_END - _LENGTH_END + middle + size, 4)
            _write_number(out + 12, leader_epoch, 4)
            out[16] = _MAGIC
            memcpy(out + _CRC_END, given, middle)
            memcpy(out + _CRC_END + middle, source, size)
            _write_number(out + 17, crc32c_extend(0, out + _CRC_END, middle + size), 4)
        return whole

    cdef int _reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t needed = self.size + more
        cdef uint8_t* grown
        if needed > self._capacity:
            needed = max(needed, 2 * self._capacity, 1024)
            grown = <uint8_t*>realloc(self._data, needed)
            if grown == NULL:
                raise MemoryError
            self._data = grown
            self._capacity = needed
        return 0


cdef bytes as_bytes(data):
    if data is None or type(data) is bytes:
        return data
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise LocalProtocolError(
            f"keys and values are bytes, not {type(data).__name__}: serialize them first"
        ) from None


cdef list encoded_headers(headers):
    """Return names and values alternately, as bytes; most records have none."""
    cdef list encoded = []
    for name, value in headers:
        try:
            encoded.append(name.encode())
        except (AttributeError, UnicodeEncodeError):
            raise LocalProtocolError(f"header name {name!r:.80} is not str") from None
        encoded.append(as_bytes(value))
    return encoded


cdef inline int64_t _bytes_size(bytes data):
    if data is None:
        return 1
    return varint_size(PyBytes_GET_SIZE(data)) + PyBytes_GET_SIZE(data)


cdef inline uint8_t* _write_bytes(uint8_t* out, bytes data):
    if data is None:
        out[0] = 1  # -1, zig-zag
        return out + 1
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    out = write_varint(out, size)
    memcpy(out, PyBytes_AS_STRING(data), size)
    return out + size


cdef class RecordReader:
    """Parses the records part of a batch into a list."""

    cdef const uint8_t* _at
    cdef const uint8_t* _end
    cdef int64_t _base_offset
    cdef int64_t _last_offset_delta
    cdef int64_t _base_timestamp
    cdef int64_t _max_headers
    cdef object _append_time

    def __init__(self, header, append_time, max_headers):
        self._base_offset = header.base_offset
        self._last_offset_delta = header.last_offset_delta
        self._base_timestamp = header.base_timestamp
        self._append_time = append_time
        self._max_headers = max_headers

    def read(self, records, Py_ssize_t count):
        """Return the `count` records in `records`, which are uncompressed."""
        cdef Py_buffer view
        cdef Py_ssize_t i
        cdef list result = []
        PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
        try:
            self._at = <const uint8_t*>view.buf
            self._end = self._at + view.len
            for i in range(count):
                result.append(self._record())
            if self._at != self._end:
                raise RemoteProtocolError(f"{self._end - self._at} bytes after the last record")
        finally:
            PyBuffer_Release(&view)
        return result

    cdef object _record(self):
        cdef const uint8_t* batch_end = self._end
        cdef int64_t length = self._number(32)
        if length < 1 or length > batch_end - self._at:
            raise _malformed("length", length)
        cdef const uint8_t* record_end = self._at + length
        cdef int64_t timestamp, timestamp_delta, offset_delta
        self._end = record_end
        self._at += 1
        timestamp_delta = self._number(64)
        offset_delta = self._number(32)
        if offset_delta < 0 or offset_delta > self._last_offset_delta:
            raise _malformed("offset delta", offset_delta)
        if __builtin_add_overflow(self._base_timestamp, timestamp_delta, &timestamp):
            raise _malformed("timestamp delta", timestamp_delta)
        key = self._bytes()
        value = self._bytes()
        headers = self._headers()
        if self._at != record_end:
            raise _malformed("length", length)
        self._end = batch_end
        return _new_record(
            self._base_offset + offset_delta,
            timestamp if self._append_time is None else self._append_time,
            key, value, headers,
        )

    cdef int64_t _number(self, int bits) except? -1:
        cdef int64_t value
        cdef const uint8_t* after = read_varint(self._at, self._end, bits, &value)
        if after == NULL:
            raise RemoteProtocolError("a record has a varint that is truncated or too long")
        self._at = after
        return value

    cdef bytes _bytes(self):
        cdef int64_t size = self._number(32)
        if size < 0:
            return None
        if size > self._end - self._at:
            raise _malformed("field length", size)
        cdef bytes data = PyBytes_FromStringAndSize(<const char*>self._at, size)
        self._at += size
        return data

    cdef tuple _headers(self):
        cdef int64_t count = self._number(32)
        if count == 0:
            return ()
        if count < 0 or count > (self._end - self._at) // 2 or count > self._max_headers:
            raise _malformed("header count", count)
        cdef list headers = []
        cdef int64_t i
        for i in range(count):
            name = self._name()
            headers.append((name, self._bytes()))
        return tuple(headers)

    cdef str _name(self):
        cdef int64_t size = self._number(32)
        if size < 0 or size > self._end - self._at:
            raise _malformed("header name length", size)
        # decoded as in Java; brokers do not read names
        name = PyUnicode_DecodeUTF8(<const char*>self._at, size, "replace")
        self._at += size
        return name


cdef object _Record = Record


cdef inline object _new_record(int64_t offset, timestamp, bytes key, bytes value, tuple headers):
    cdef object record = PyType_GenericAlloc(<PyTypeObject*>_Record, 5)
    _put(record, 0, offset)
    _put(record, 1, timestamp)
    _put(record, 2, key)
    _put(record, 3, value)
    _put(record, 4, headers)
    # Bytes, numbers and text form no cycles, so records are untracked: the garbage collector would
    # otherwise traverse them again and again while they wait.
    PyObject_GC_UnTrack(record)
    return record


cdef inline void _put(object record, Py_ssize_t at, object value) noexcept:
    Py_INCREF(value)  # the tuple takes over this reference
    PyTuple_SET_ITEM(record, at, value)


cdef object _malformed(str what, int64_t value):
    return RemoteProtocolError(f"record has {what} {value}, which does not fit its batch")
