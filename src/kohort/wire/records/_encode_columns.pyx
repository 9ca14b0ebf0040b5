# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Encodes Arrow columns directly into record batches, without a Python object per record.

Checked rows are grouped by partition, then encoded batch by batch, both without the interpreter
lock.
"""

import pyarrow as pa

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from kohort.wire.records._columns cimport (
    BAD_HEADERS, BAD_PARTITION, BAD_TIMESTAMP, GOOD, MOST_OVERHEAD, Columns, Field, Outcome, Row,
    Table, field_size, find, find_partition, find_row, find_time, payload_size,
)
from kohort.wire.records._crc32c cimport crc32c_extend
from kohort.wire.records._varint cimport unlikely, varint_size, write_varint

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static inline uint8_t* kohort_put(uint8_t* p, uint64_t value, int bytes) {
        for (int i = bytes - 1; i >= 0; i--, value >>= 8) p[i] = (uint8_t)value;
        return p + bytes;
    }

    /* Products of polynomials modulo Castagnoli's, bits reversed: bit 31 is the power 0. */
    static uint32_t kohort_times(uint32_t a, uint32_t b) {
        uint32_t product = 0;
        for (uint32_t bit = 0x80000000u; bit; bit >>= 1) {
            if (a & bit) product ^= b;
            b = b & 1 ? b >> 1 ^ 0x82f63b78u : b >> 1;
        }
        return product;
    }

    /* The factor of a CRC that this number of bytes follow. */
    static uint32_t kohort_shift(uint64_t bytes) {
        uint32_t power = 0x80000000u, square = 0x00800000u;
        for (; bytes; bytes >>= 1) {
            if (bytes & 1) power = kohort_times(power, square);
            square = kohort_times(square, square);
        }
        return power;
    }

    /* The CRC-32 of zlib, which librdkafka uses to choose partitions. */
    static uint32_t kohort_crc32_table[256];

    static void kohort_prepare_crc32(void) {
        for (uint32_t b = 0; b < 256; b++) {
            uint32_t crc = b;
            for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
            kohort_crc32_table[b] = crc;
        }
    }

    static uint32_t kohort_crc32(const uint8_t* p, int64_t size) {
        uint32_t crc = 0xffffffffu;
        while (size--) crc = crc >> 8 ^ kohort_crc32_table[(crc ^ *p++) & 255];
        return ~crc;
    }

    static uint32_t kohort_murmur2(const uint8_t* p, int64_t size) {
        const uint32_t m = 0x5bd1e995u;
        uint32_t h = 0x9747b28cu ^ (uint32_t)size;
        for (; size >= 4; p += 4, size -= 4) {
            uint32_t k = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16
                       | (uint32_t)p[3] << 24;
            k *= m;
            h = h * m ^ (k ^ k >> 24) * m;
        }
        if (size > 2) h ^= (uint32_t)p[2] << 16;
        if (size > 1) h ^= (uint32_t)p[1] << 8;
        if (size > 0) h = (h ^ p[0]) * m;
        h = (h ^ h >> 13) * m;
        return h ^ h >> 15;
    }
    """
    void prepare_crc32 "kohort_prepare_crc32"() noexcept nogil
    uint32_t crc32 "kohort_crc32"(const uint8_t* at, int64_t size) noexcept nogil
    uint8_t* put "kohort_put"(uint8_t* at, uint64_t value, int count) noexcept nogil
    uint32_t times "kohort_times"(uint32_t a, uint32_t b) noexcept nogil
    uint32_t shift_of "kohort_shift"(uint64_t count) noexcept nogil
    uint32_t murmur2 "kohort_murmur2"(const uint8_t* at, int64_t size) noexcept nogil

cdef enum:
    HEADER_SIZE = 61
    TRANSACTIONAL = 0x10
    LENGTH_END = 12
    MAGIC = 2
    CRC_AT = 17
    CRC_START = 21
    # Overhead of a record of a hundred bytes, without and with a column of timestamps.
    USUAL_OVERHEAD = 11
    USUAL_TIME = 4
    # The buffer of a large batch is kept for the next one: the system zeroes fresh memory, which
    # takes longer than encoding the records.
    BLOCK = 1024 * 1024
    MOST_KEPT = 8


cdef uint8_t* write_field(uint8_t* out, const uint8_t* end, Field field) noexcept nogil:
    """Write a length and bytes; return NULL if they do not fit."""
    if field.size < 0:
        if end - out < 1:
            return NULL
        out[0] = 1  # -1, zig-zag
        return out + 1
    if end - out < field_size(field.size):
        return NULL
    out = write_varint(out, field.size)
    memcpy(out, field.at, field.size)
    return out + field.size


cdef uint8_t* write_headers(
    uint8_t* out, const uint8_t* end, const Table* table, const Row* row
) noexcept nogil:
    cdef int64_t i
    for i in range(row.first_header, row.first_header + row.header_count):
        out = write_field(out, end, find(&table.names, i))
        if out != NULL:
            out = write_field(out, end, find(&table.contents, i))
        if out == NULL:
            return NULL
    return out


cpdef enum Hasher:
    # how a key's partition is chosen: as in Java, as in librdkafka, or not at all
    MURMUR2 = 0
    CRC32 = 1
    NONE = 2


cdef struct Written:
    # a batch being written
    uint8_t* out
    const uint8_t* end
    # where the batch is full; only a first record that is too large may end after it
    const uint8_t* full
    int64_t count
    int64_t bound
    int64_t base_timestamp
    int64_t max_timestamp


cdef Outcome write_rows(
    const Table* table, const int32_t* order, int64_t first_row, int64_t count, Written* batch
) noexcept nogil:
    """Write the rows listed in `order` until the next one does not fit."""
    cdef Row row
    cdef int64_t i, time, body, time_delta
    cdef Outcome outcome
    cdef uint8_t* out = batch.out
    cdef const uint8_t* record_end
    batch.count = batch.bound = 0
    for i in range(count):
        outcome = find_row(table, first_row + order[i], &row, False)
        if unlikely(outcome != GOOD):
            return outcome
        if unlikely(not find_time(table, first_row + order[i], &time)):
            return BAD_TIMESTAMP
        if i == 0:
            batch.base_timestamp = batch.max_timestamp = time
        time_delta = time - batch.base_timestamp
        body = (
            1 + varint_size(time_delta) + varint_size(i) + field_size(row.key.size)
            + field_size(row.value.size) + varint_size(row.header_count) + row.headers_size
        )
        if varint_size(body) + body > (batch.full if i else batch.end) - out:
            break
        out = write_varint(out, body)
        record_end = out + body
        out[0] = 0
        out = write_varint(out + 1, time_delta)
        out = write_varint(out, i)
        out = write_field(out, record_end, row.key)
        out = write_field(out, record_end, row.value)
        out = write_varint(out, row.header_count)
        if row.header_count:
            out = write_headers(out, record_end, table, &row)
        if unlikely(out != record_end):
            return BAD_HEADERS
        if time > batch.max_timestamp:
            batch.max_timestamp = time
        batch.count += 1
        batch.bound += payload_size(&row) + MOST_OVERHEAD
    batch.out = out
    return GOOD

cdef class Groups:
    """Rows grouped by partition, and the encoding progress of each group; see the stub."""

    cdef Columns _columns
    cdef int64_t _first_row
    cdef int64_t _rows
    cdef int32_t* _order
    cdef int64_t* _next
    cdef int64_t* _end
    cdef int64_t* _bounds
    cdef int32_t* _chosen
    cdef int _hasher
    cdef readonly int64_t partitions

    def __init__(
        self, Columns columns, int64_t first_row, int64_t rows, int64_t partitions,
        int64_t start, int64_t sticky_bytes, int hasher=MURMUR2,
    ):
        if not (
            0 <= first_row <= columns.rows and 0 <= rows <= columns.rows - first_row
            and rows <= INT32_MAX and 0 < partitions <= INT32_MAX and 0 <= start < partitions
        ):
            raise ValueError(f"rows {first_row} to {first_row + rows} of {columns.rows}")
        self._columns, self._first_row, self._rows = columns, first_row, rows
        self.partitions = partitions
        self._hasher = hasher
        self._order = <int32_t*>malloc(4 * (rows + 1))
        self._chosen = <int32_t*>malloc(4 * (rows + 1))
        self._next = <int64_t*>calloc(partitions + 1, 8)
        self._end = <int64_t*>calloc(partitions + 1, 8)
        self._bounds = <int64_t*>calloc(partitions + 1, 8)
        if not (self._order and self._chosen and self._next and self._end and self._bounds):
            raise MemoryError
        cdef Outcome outcome
        with nogil:
            outcome = self._choose(start, sticky_bytes)
            if outcome == GOOD:
                self._sort()
        free(self._chosen)
        self._chosen = NULL
        if outcome != GOOD:
            raise _changed()

    def __dealloc__(self):
        free(self._order)
        free(self._chosen)
        free(self._next)
        free(self._end)
        free(self._bounds)

    cdef Outcome _choose(self, int64_t sticky, int64_t sticky_bytes) noexcept nogil:
        """Choose the partition of each row; rows without a key fill one partition after another."""
        cdef const Table* table = &self._columns.table
        cdef int64_t usual = USUAL_OVERHEAD + (USUAL_TIME if table.timestamps.kind else 0)
        cdef int64_t i, partition, used = 0, size
        cdef Row row
        cdef Outcome outcome
        for i in range(self._rows):
            outcome = find_row(table, self._first_row + i, &row, False)
            if outcome != GOOD:
                return outcome
            size = payload_size(&row)
            if find_partition(table, self._first_row + i, &partition):
                if not 0 <= partition < self.partitions:
                    return BAD_PARTITION
            elif row.key.size >= 0 and self._hasher == MURMUR2:
                partition = (murmur2(row.key.at, row.key.size) & 0x7FFFFFFF) % self.partitions
            elif row.key.size > 0 and self._hasher == CRC32:
                partition = crc32(row.key.at, row.key.size) % self.partitions
            else:
                used += size + usual
                if used > sticky_bytes and used > size + usual:
                    sticky = (sticky + 1) % self.partitions
                    used = size + usual
                partition = sticky
            self._chosen[i] = <int32_t>partition
            self._end[partition] += 1
            self._bounds[partition] += size + MOST_OVERHEAD
        return GOOD

    cdef void _sort(self) noexcept nogil:
        cdef int64_t partition, i, total = 0
        for partition in range(self.partitions):
            self._next[partition] = total
            total += self._end[partition]
            self._end[partition] = self._next[partition]
        for i in range(self._rows):
            partition = self._chosen[i]
            self._order[self._end[partition]] = <int32_t>i
            self._end[partition] += 1

    def pending(self):
        """Return the partitions that have rows left to encode."""
        return [each for each in range(self.partitions) if self._next[each] < self._end[each]]

    def left(self, int64_t partition):
        """Return the number of rows of a partition that are left to encode."""
        if not 0 <= partition < self.partitions:
            raise ValueError(f"no partition {partition}")
        return self._end[partition] - self._next[partition]

    def need(self, int64_t partition, int64_t limit):
        """Return the maximum size of a partition's next batch; see the stub."""
        self._known(partition)
        return HEADER_SIZE + self._capacity(partition, limit)

    def encode(self, int64_t partition, int64_t limit):
        """Encode the next batch of a partition; see the stub."""
        self._known(partition)
        cdef int64_t first = self._next[partition]
        cdef int64_t capacity = self._capacity(partition, limit)
        cdef Written written
        cdef Outcome outcome
        cdef EncodedRows rows = EncodedRows.__new__(EncodedRows)
        rows._make_room(capacity)
        written.out = rows._data + HEADER_SIZE
        written.end = written.out + capacity
        written.full = written.out + min(capacity, limit)
        with nogil:
            outcome = write_rows(
                &self._columns.table, self._order + first, self._first_row,
                self._end[partition] - first, &written,
            )
        if outcome != GOOD or written.count == 0:
            raise _changed()
        self._next[partition] += written.count
        self._bounds[partition] = max(0, self._bounds[partition] - written.bound)
        rows.count = written.count
        rows.rows = self._numbers(first, written.count)
        rows.base_timestamp, rows.max_timestamp = written.base_timestamp, written.max_timestamp
        rows._finish(written.out - rows._data - HEADER_SIZE)
        return rows

    def rows_left(self):
        """Return the numbers of all rows that are left to encode."""
        left = [self._numbers(at, self._end[each] - at) for each, at in self._begins()]
        return pa.concat_arrays(left) if left else pa.array([], pa.int64())

    def _begins(self):
        return [(each, self._next[each]) for each in self.pending()]

    cdef object _numbers(self, int64_t first, int64_t count):
        """Return the numbers of rows in the table, and release them."""
        cdef int64_t i
        numbers = pa.allocate_buffer(8 * count)
        cdef int64_t* to = <int64_t*><uintptr_t>numbers.address
        for i in range(count):
            to[i] = self._first_row + self._order[first + i]
        return pa.Array.from_buffers(pa.int64(), count, [None, numbers], 0)

    cdef int _known(self, int64_t partition) except -1:
        if not 0 <= partition < self.partitions or self._next[partition] >= self._end[partition]:
            raise ValueError(f"no rows are left for partition {partition}")
        return 0

    cdef int64_t _capacity(self, int64_t partition, int64_t limit) except -1:
        """Return the space for the next batch: the limit, or the size of a larger first record."""
        cdef Row row
        cdef int64_t first = self._first_row + self._order[self._next[partition]]
        if find_row(&self._columns.table, first, &row, False) != GOOD:
            raise _changed()
        return max(payload_size(&row) + MOST_OVERHEAD, min(limit, self._bounds[partition]))


def _changed():
    return ValueError("the table was changed while it was being sent")


cdef void* kept_blocks[MOST_KEPT]
cdef int kept = 0


cdef uint8_t* new_block() noexcept:
    global kept
    if kept == 0:
        return <uint8_t*>malloc(BLOCK)
    kept -= 1
    return <uint8_t*>kept_blocks[kept]


cdef void free_block(uint8_t* block) noexcept:
    global kept
    if kept == MOST_KEPT:
        free(block)
    else:
        kept_blocks[kept] = block
        kept += 1


cdef class EncodedRows:
    """The records of one batch, without the fields that are set when it is sent; see the stub."""

    cdef uint8_t* _data
    cdef uint32_t _crc
    cdef uint32_t _shift
    cdef int _codec
    cdef int _exports
    cdef bint _is_block
    cdef tuple _numbers
    cdef readonly int64_t count
    cdef readonly int64_t size
    cdef readonly int64_t memory
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly object rows

    def __dealloc__(self):
        if self._is_block:
            free_block(self._data)
        else:
            free(self._data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self._data, HEADER_SIZE + self.size, 1, flags)
        self._exports += 1

    def __releasebuffer__(self, Py_buffer* view):
        self._exports -= 1

    @property
    def codec(self):
        """Number of the codec."""
        return self._codec

    def records(self):
        """Return the records without the header."""
        return memoryview(self)[HEADER_SIZE:]

    def compressed(self, int codec, data):
        """Return the same batch with its records compressed to `data`."""
        cdef Py_buffer view
        cdef EncodedRows other = EncodedRows.__new__(EncodedRows)
        other.count, other.rows = self.count, self.rows
        other.base_timestamp, other.max_timestamp = self.base_timestamp, self.max_timestamp
        other._codec = codec
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            other._make_room(view.len)
            memcpy(other._data + HEADER_SIZE, view.buf, view.len)
            other._finish(view.len)
        finally:
            PyBuffer_Release(&view)
        return other

    def build(self, codec=None, *, int64_t producer_id=-1, int16_t producer_epoch=-1,
              int32_t base_sequence=-1, bint is_transactional=False):
        """Return the whole batch; see the stub."""
        numbers = (producer_id, producer_epoch, base_sequence, is_transactional)
        if numbers == self._numbers:
            return memoryview(self)
        if self._exports:
            # A sender may still use a batch that was built before.
            return self._copy().build(
                producer_id=producer_id, producer_epoch=producer_epoch,
                base_sequence=base_sequence, is_transactional=is_transactional)
        cdef uint8_t* out = put(self._data, 0, 8)
        out = put(out, HEADER_SIZE - LENGTH_END + self.size, 4)
        out = put(out, 0xFFFFFFFF, 4)
        out = put(out, MAGIC, 1)
        out = put(self._data + CRC_START, self._codec | (TRANSACTIONAL if is_transactional else 0), 2)
        out = put(out, self.count - 1, 4)
        out = put(out, <uint64_t>self.base_timestamp, 8)
        out = put(out, <uint64_t>self.max_timestamp, 8)
        out = put(out, <uint64_t>producer_id, 8)
        out = put(out, <uint64_t>producer_epoch, 2)
        out = put(out, <uint64_t>base_sequence, 4)
        put(out, self.count, 4)
        cdef uint32_t crc = crc32c_extend(0, self._data + CRC_START, HEADER_SIZE - CRC_START)
        put(self._data + CRC_AT, times(crc, self._shift) ^ self._crc, 4)
        self._numbers = numbers
        return memoryview(self)

    cdef EncodedRows _copy(self):
        return self.compressed(self._codec, self.records())

    cdef int _make_room(self, int64_t size) except -1:
        self.memory = HEADER_SIZE + size
        self._is_block = BLOCK - BLOCK // 8 <= self.memory <= BLOCK
        if self._is_block:
            self.memory = BLOCK
        self._data = new_block() if self._is_block else <uint8_t*>malloc(self.memory)
        if self._data == NULL:
            raise MemoryError
        return 0

    cdef int _finish(self, int64_t size) except -1:
        """Release unused memory, and compute the checksum of the used part."""
        cdef uint8_t* cut
        if not self._is_block:
            self.memory = HEADER_SIZE + size
            cut = <uint8_t*>realloc(self._data, self.memory)
            if cut == NULL:
                raise MemoryError
            self._data = cut
        self.size = size
        with nogil:
            self._crc = crc32c_extend(0, self._data + HEADER_SIZE, size)
            self._shift = shift_of(size)
        return 0


prepare_crc32()
