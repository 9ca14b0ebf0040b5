# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Decodes record batches directly into Arrow columns, without a Python object per record.

Each batch is checked, decompressed and parsed while its bytes are in the cache. Before it is
parsed, every column gets enough space for all it can contain, so the loop over the records only
checks that it stays inside the batch, and runs without the interpreter lock. Unused space is
released at the end; until then its pages were never touched.
"""

import pyarrow as pa

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uintptr_t
from libc.string cimport memcpy, memset

from kohort.wire.records._crc32c cimport crc32c_extend
from kohort.wire.records._parse cimport GOOD, HEADERS_FOUND, ODD_NAME_FOUND, SLACK, Batch, Bytes, Outcome, Rows, parse

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.wire.records.compression import decompress
from kohort.wire.records.header import Compression, parse_header

cdef extern from *:
    """
    static inline int16_t kohort_int16(const uint8_t* p) { return (int16_t)(p[0] << 8 | p[1]); }

    static inline int32_t kohort_int32(const uint8_t* p) {
        return (int32_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
    }

    static inline int64_t kohort_int64(const uint8_t* p) {
        return (int64_t)((uint64_t)(uint32_t)kohort_int32(p) << 32 | (uint32_t)kohort_int32(p + 4));
    }
    """
    int16_t int16_at "kohort_int16"(const uint8_t* at) noexcept nogil
    int32_t int32_at "kohort_int32"(const uint8_t* at) noexcept nogil
    int64_t int64_at "kohort_int64"(const uint8_t* at) noexcept nogil

cdef enum:
    HEADER_SIZE = 61
    LENGTH_END = 12
    MAGIC_AT = 16
    CRC_AT = 17
    CRC_START = 21
    MIN_RECORD_SIZE = 7
    COMPRESSION = 0x07
    MAX_COMPRESSION = 4
    LOG_APPEND_TIME = 0x08
    CONTROL = 0x20
    # Size of a row without its key, value, headers and topic name.
    ROW_SIZE = 48
    # Size of a header without its name and value.
    HEADER_ROW_SIZE = 8

_COMPLAINTS = {
    Outcome.BAD_VARINT: "a varint is truncated or too long",
    Outcome.BAD_LENGTH: "a record's length does not fit",
    Outcome.BAD_END: "a record's fields do not end where the record ends",
    Outcome.BAD_FIELD: "a key, value or header is longer than its record",
    Outcome.BAD_OFFSET: "a record's offset is outside of its batch",
    Outcome.BAD_TIMESTAMP: "a timestamp does not fit into 64 bits",
    Outcome.BAD_HEADER_COUNT: "a record has more headers than bytes, or than the limit",
    Outcome.BAD_TAIL: "bytes follow the last record",
}


cdef class _Growing:
    """A buffer of a column to which rows are being appended."""

    cdef object buffer
    cdef uint8_t* data
    cdef int64_t capacity
    cdef int fill

    def __cinit__(self, int fill=-1):
        self.fill = fill
        self.capacity = 0
        self.data = NULL

    cdef int reserve(self, int64_t capacity) except -1:
        """Reserve `capacity` bytes; new bytes are set to `fill` unless that is negative."""
        if capacity <= self.capacity and self.data != NULL:
            return 0
        if self.data == NULL:
            self.buffer = pa.allocate_buffer(capacity + SLACK, resizable=True)
        else:
            capacity = max(capacity, 2 * self.capacity)
            self.buffer.resize(capacity + SLACK)
        self.data = <uint8_t*><uintptr_t>self.buffer.address
        if self.fill >= 0:
            memset(self.data + self.capacity, self.fill, capacity - self.capacity)
        self.capacity = capacity
        return 0

    cdef object finish(self, int64_t size):
        """Return the buffer, truncated to `size` bytes."""
        self.buffer.resize(size, shrink_to_fit=True)
        self.data = NULL
        return self.buffer


cdef class _BytesColumn:
    """A column of byte strings, with the pointers that the loop uses."""

    cdef _Growing ends, data, validity

    def __cinit__(self):
        self.ends, self.data, self.validity = _Growing(), _Growing(), _Growing(0xFF)

    cdef int reserve(self, Bytes* column, int64_t elements, int64_t size) except -1:
        cdef bint first = self.ends.data == NULL
        self.ends.reserve(4 * (elements + 1))
        self.data.reserve(size)
        self.validity.reserve((elements + 7) // 8)
        column.ends = <int32_t*>self.ends.data
        column.data = self.data.data
        column.validity = self.validity.data
        if first:
            column.ends[0] = 0
        return 0

    cdef object finish(self, Bytes* column, object kind, int64_t elements):
        validity = self.validity.finish((elements + 7) // 8) if column.nulls else None
        ends = self.ends.finish(4 * (elements + 1))
        data = self.data.finish(column.size)
        return pa.Array.from_buffers(kind, elements, [validity, ends, data], column.nulls)


_BINARY = pa.binary()
_STRING = pa.string()
_INT32 = pa.int32()
_INT64 = pa.int64()
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_HEADER = pa.struct([("key", _STRING), ("value", _BINARY)])
_HEADERS = pa.list_(pa.field("element", _HEADER))


cdef void fill_int32(int32_t* column, int64_t count, int32_t value) noexcept nogil:
    cdef int64_t i
    for i in range(count):
        column[i] = value


cdef void fill_ends(int32_t* ends, int64_t count, int32_t start, int32_t size) noexcept nogil:
    cdef int64_t i
    for i in range(count):
        ends[i] = start + <int32_t>i * size


cdef void fill_names(uint8_t* to, const uint8_t* name, int64_t size, int64_t count) noexcept nogil:
    """Write a name `count` times: once, then by copying the part already written."""
    cdef int64_t done = size
    cdef int64_t total = size * count
    if total == 0:
        return
    memcpy(to, name, size)
    while done < total:
        memcpy(to + done, to, min(done, total - done))
        done *= 2


cdef class ColumnDecoder:
    """Appends the records of fetched batches to columns, and returns them as a RecordBatch."""

    cdef Rows _rows
    cdef _BytesColumn _keys, _values, _names, _contents
    cdef _Growing _offsets, _timestamps, _header_ends, _header_validity
    cdef _Growing _topic_ends, _topics, _partitions, _timestamp_types
    cdef int64_t _topic_bytes, _filled, _max_bytes
    cdef bint _include_headers, _check_crc, _headers_found, _odd_name_found
    cdef bint _keep_keys, _keep_values, _keep_topics, _keep_partitions, _keep_types
    cdef int32_t _max_records, _max_headers
    cdef object _limits
    cdef readonly list clipped

    def __init__(self, columns, bint check_crc, int64_t max_bytes, limits):
        self._include_headers = "headers" in columns
        self._keep_keys, self._keep_values = "key" in columns, "value" in columns
        self._keep_topics, self._keep_partitions = "topic" in columns, "partition" in columns
        self._keep_types = "timestampType" in columns
        self._check_crc = check_crc
        self._max_bytes = min(max_bytes, INT32_MAX)
        self._limits = limits
        self.clipped = []
        self._max_records = limits.max_records_per_batch
        self._max_headers = limits.max_headers_per_record
        self._keys, self._values = _BytesColumn(), _BytesColumn()
        self._names, self._contents = _BytesColumn(), _BytesColumn()
        self._offsets, self._timestamps = _Growing(), _Growing()
        self._header_ends, self._header_validity = _Growing(), _Growing(0)
        self._topic_ends, self._topics = _Growing(), _Growing()
        self._partitions, self._timestamp_types = _Growing(), _Growing()

    def expect(self, fetched):
        """Preallocate about the size of the `fetched` buffers, to avoid moving data later."""
        cdef Py_buffer view
        cdef int64_t rows = 0, size = 0, topics = 0, count
        for topic, _, data, _, _ in fetched:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            count = count_records(<const uint8_t*>view.buf, view.len)
            rows += count
            size += view.len
            topics += count * len(topic)
            PyBuffer_Release(&view)
        self._reserve(rows, min(size, self._max_bytes), min(topics, self._max_bytes))

    def add(self, str topic, int32_t partition, data, int64_t from_offset, int64_t to_offset):
        """Append the records of `data` in [from_offset, to_offset).

        Returns the offset to continue from: `to_offset`, the one after the last whole batch, or the
        one at which `max_bytes` were reached.
        """
        cdef Py_buffer view
        cdef int64_t next_offset = from_offset
        cdef bytes name = topic.encode()
        cdef Batch batch
        cdef const uint8_t* at
        cdef const uint8_t* end
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            at = <const uint8_t*>view.buf
            end = at + view.len
            while next_offset < to_offset and self._open(&batch, at, end):
                if batch.base_offset >= to_offset:
                    return to_offset
                if batch.base_offset + batch.last_offset_delta >= next_offset:
                    batch.from_offset, batch.to_offset = next_offset, to_offset
                    if not self._add_batch(&batch, at, name, topic, partition):
                        return next_offset
                    next_offset = min(batch.base_offset + batch.last_offset_delta + 1, to_offset)
                at += LENGTH_END + int32_at(at + 8)
            return next_offset
        finally:
            PyBuffer_Release(&view)

    def finish(self, schema):
        """Return the rows as a RecordBatch; the decoder cannot be used again."""
        self._reserve(0, 0, 0)
        columns = [self._finish_column(name) for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    cdef object _finish_column(self, str name):
        cdef int64_t rows = self._rows.count
        if name == "key":
            return self._keys.finish(&self._rows.keys, _BINARY, rows)
        if name == "value":
            return self._values.finish(&self._rows.values, _BINARY, rows)
        if name == "topic":
            return pa.Array.from_buffers(_STRING, rows, [
                None,
                self._topic_ends.finish(4 * (rows + 1)),
                self._topics.finish(self._topic_bytes),
            ], 0)
        if name == "partition":
            return _numbers(_INT32, rows, self._partitions.finish(4 * rows))
        if name == "offset":
            return _numbers(_INT64, rows, self._offsets.finish(8 * rows))
        if name == "timestamp":
            return _numbers(_TIMESTAMP, rows, self._timestamps.finish(8 * rows))
        if name == "timestampType":
            return _numbers(_INT32, rows, self._timestamp_types.finish(4 * rows))
        return self._finish_headers()

    cdef object _finish_headers(self):
        cdef int64_t rows = self._rows.count
        cdef int64_t headers = self._rows.headers
        if self._rows.with_headers == 0:
            return pa.nulls(rows, _HEADERS)
        elements = pa.Array.from_buffers(_HEADER, headers, [None], 0, children=[
            self._names.finish(&self._rows.names, _STRING, headers),
            self._contents.finish(&self._rows.contents, _BINARY, headers),
        ])
        return pa.Array.from_buffers(_HEADERS, rows, [
            self._header_validity.finish((rows + 7) // 8),
            self._header_ends.finish(4 * (rows + 1)),
        ], rows - self._rows.with_headers, children=[elements])

    cdef bint _open(self, Batch* batch, const uint8_t* at, const uint8_t* end) except -1:
        """Read the header at `at`; return False if the batch is incomplete."""
        cdef int32_t length, attributes
        if end - at < HEADER_SIZE:
            if end - at > MAGIC_AT and at[MAGIC_AT] != 2:
                self._refuse(at, end)
            return False
        length = int32_at(at + 8)
        attributes = int16_at(at + CRC_START)
        batch.base_offset = int64_at(at)
        batch.last_offset_delta = int32_at(at + 23)
        batch.base_timestamp = int64_at(at + 27)
        batch.append_time = int64_at(at + 35)
        batch.has_append_time = attributes & LOG_APPEND_TIME != 0
        batch.count = int32_at(at + 57)
        if (
            at[MAGIC_AT] != 2 or length < HEADER_SIZE - LENGTH_END or batch.base_offset < 0
            or batch.last_offset_delta < 0
            or batch.base_offset >= INT64_MAX - batch.last_offset_delta
            or attributes & COMPRESSION > MAX_COMPRESSION
            or batch.count < 0 or batch.count > self._max_records
            or batch.count > batch.last_offset_delta + 1
        ):
            self._refuse(at, end)
        batch.records = at + HEADER_SIZE
        batch.end = at + LENGTH_END + length
        batch.readable_end = end
        return end - at >= LENGTH_END + <int64_t>length

    cdef int _refuse(self, const uint8_t* at, const uint8_t* end) except -1:
        """Raise the error of `parse_header` for an invalid header."""
        header = PyBytes_FromStringAndSize(<const char*>at, min(end - at, HEADER_SIZE))
        parse_header(header, limits=self._limits)
        raise RemoteProtocolError("record batch with a malformed header")

    cdef bint _add_batch(
        self, Batch* batch, const uint8_t* at, bytes name, str topic, int32_t partition
    ) except -1:
        """Append one batch; return False if there is no space left for it."""
        cdef Py_buffer view
        cdef int codec = int16_at(at + CRC_START) & COMPRESSION
        try:
            if self._check_crc:
                check_crc(at, batch.end)
            if batch.count == 0 or int16_at(at + CRC_START) & CONTROL:
                return True
            if codec == 0:
                return self._add_records(batch, name, topic, partition)
            records = decompress(Compression(codec), PyMemoryView_FromMemory(
                <char*>batch.records, batch.end - batch.records, PyBUF_READ
            ), self._limits)
            PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
            try:
                batch.records = <const uint8_t*>view.buf
                batch.end = batch.readable_end = batch.records + view.len
                return self._add_records(batch, name, topic, partition)
            finally:
                PyBuffer_Release(&view)
        except RemoteProtocolError as error:
            raise RemoteProtocolError(
                f"record batch at offset {batch.base_offset} of {topic}-{partition}: {error}"
            ) from None

    cdef bint _add_records(
        self, Batch* batch, bytes name, str topic, int32_t partition
    ) except -1:
        cdef int64_t size = batch.end - batch.records
        cdef int64_t names = batch.count * PyBytes_GET_SIZE(name) if self._keep_topics else 0
        cdef Outcome outcome
        if batch.count * MIN_RECORD_SIZE > size:
            raise RemoteProtocolError(f"{batch.count} records in {size} bytes")
        cdef int64_t grown = 3 * size if self._odd_name_found else size
        if self._rows.count and self._size() + grown + names + batch.count * ROW_SIZE > (
            self._max_bytes
        ):
            return False
        if grown > INT32_MAX:
            raise RemoteProtocolError(f"header names that are not UTF-8, in {size} bytes")
        if names > INT32_MAX:
            raise LocalProtocolError(f"a topic name of {PyBytes_GET_SIZE(name)} bytes")
        self._reserve(batch.count, size, names)
        batch.max_headers = self._max_headers
        batch.keep_headers = self._include_headers
        batch.keep_keys, batch.keep_values = self._keep_keys, self._keep_values
        batch.room_for_headers = self._headers_found
        batch.room_for_odd_names = self._odd_name_found
        with nogil:
            outcome = parse(batch, &self._rows)
        if outcome == HEADERS_FOUND:
            self._headers_found = True
            return self._add_records(batch, name, topic, partition)
        if outcome == ODD_NAME_FOUND:
            self._odd_name_found = True
            return self._add_records(batch, name, topic, partition)
        if outcome != GOOD:
            raise RemoteProtocolError(_COMPLAINTS[outcome])
        if self._rows.clipped:
            self.clipped.append((topic, partition, self._rows.first_clipped, self._rows.clipped))
            self._rows.clipped = 0
        self._fill(name, partition, batch.has_append_time)
        return True

    cdef int64_t _size(self):
        """Return the approximate size of the rows."""
        return (
            self._rows.keys.size + self._rows.values.size + self._topic_bytes
            + self._rows.names.size + self._rows.contents.size
            + ROW_SIZE * self._rows.count + HEADER_ROW_SIZE * self._rows.headers
        )

    cdef int _reserve(self, int64_t count, int64_t size, int64_t names) except -1:
        """Reserve space for `count` more records of `size` bytes, with `names` bytes of topics."""
        cdef Rows* rows = &self._rows
        cdef int64_t total = rows.count + count
        if self._keep_keys:
            self._keys.reserve(&rows.keys, total, rows.keys.size + size)
        if self._keep_values:
            self._values.reserve(&rows.values, total, rows.values.size + size)
        self._offsets.reserve(8 * total)
        self._timestamps.reserve(8 * total)
        if self._keep_topics:
            self._topic_ends.reserve(4 * (total + 1))
            self._topics.reserve(self._topic_bytes + names)
            (<int32_t*>self._topic_ends.data)[rows.count] = <int32_t>self._topic_bytes
        if self._keep_partitions:
            self._partitions.reserve(4 * total)
        if self._keep_types:
            self._timestamp_types.reserve(4 * total)
        rows.offsets = <int64_t*>self._offsets.data
        rows.timestamps = <int64_t*>self._timestamps.data
        if self._include_headers:
            self._reserve_headers(total, size if self._headers_found else 0)
        return 0

    cdef int _reserve_headers(self, int64_t total, int64_t size) except -1:
        """Reserve space for the headers of `total` rows, the new ones with `size` bytes."""
        cdef Rows* rows = &self._rows
        cdef int64_t headers = rows.headers + size // 2
        self._header_ends.reserve(4 * (total + 1))
        self._header_validity.reserve((total + 7) // 8)
        # U+FFFD takes three bytes and may replace a single one
        self._names.reserve(
            &rows.names, headers, rows.names.size + (3 * size if self._odd_name_found else size)
        )
        self._contents.reserve(&rows.contents, headers, rows.contents.size + size)
        rows.header_ends = <int32_t*>self._header_ends.data
        rows.header_validity = self._header_validity.data
        rows.header_ends[rows.count] = <int32_t>rows.headers
        return 0

    cdef int _fill(self, bytes name, int32_t partition, int32_t timestamp_type) except -1:
        """Fill the columns that are the same in all rows of the new batch."""
        cdef int64_t first = self._filled
        cdef int64_t count = self._rows.count - first
        if self._keep_topics:
            self._fill_topics(name, first, count)
        if self._keep_partitions:
            fill_int32(<int32_t*>self._partitions.data + first, count, partition)
        if self._keep_types:
            fill_int32(<int32_t*>self._timestamp_types.data + first, count, timestamp_type)
        self._filled = self._rows.count
        return 0

    cdef void _fill_topics(self, bytes name, int64_t first, int64_t count):
        cdef int64_t size = PyBytes_GET_SIZE(name)
        fill_names(
            self._topics.data + self._topic_bytes, <uint8_t*>PyBytes_AS_STRING(name), size, count
        )
        fill_ends(
            <int32_t*>self._topic_ends.data + first + 1, count,
            <int32_t>(self._topic_bytes + size), <int32_t>size,
        )
        self._topic_bytes += size * count


cdef int64_t count_records(const uint8_t* at, int64_t size) noexcept:
    """Estimate how many records a buffer contains, at most one per byte."""
    cdef int64_t records = 0, length
    while size >= HEADER_SIZE:
        length = LENGTH_END + <int64_t>int32_at(at + 8)
        if length < HEADER_SIZE or length > size:
            break
        records += max(0, min(int32_at(at + 57), length))
        at += length
        size -= length
    return records


cdef int check_crc(const uint8_t* at, const uint8_t* end) except -1:
    cdef uint32_t crc
    with nogil:
        crc = crc32c_extend(0, at + CRC_START, end - at - CRC_START)
    if crc != <uint32_t>int32_at(at + CRC_AT):
        raise RemoteProtocolError("the CRC does not match")
    return 0


cdef object _numbers(object kind, int64_t rows, object buffer):
    return pa.Array.from_buffers(kind, rows, [None, buffer], 0)
