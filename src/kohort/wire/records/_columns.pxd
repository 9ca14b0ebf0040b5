# Rows of Arrow columns, and functions that read them. Arrays may come from anywhere: each offset is
# checked against its buffer whenever it is read, as another thread may write to the buffer between
# two reads. Included by each kernel, so that the C compiler can inline it.

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from kohort.wire.records._parse cimport is_utf8
from kohort.wire.records._varint cimport unlikely, varint_size

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* Buffers may be unaligned. */
    static inline int32_t kohort_load32(const uint8_t* p) { int32_t n; memcpy(&n, p, 4); return n; }
    static inline int64_t kohort_load64(const uint8_t* p) { int64_t n; memcpy(&n, p, 8); return n; }
    """
    int32_t load32 "kohort_load32"(const uint8_t* at) noexcept nogil
    int64_t load64 "kohort_load64"(const uint8_t* at) noexcept nogil
    bint __builtin_mul_overflow(int64_t a, int64_t b, int64_t* result) noexcept nogil

cdef enum:
    # Special sizes: null, and offsets outside of the buffer.
    NULL_SIZE = -1
    BAD_SIZE = -2
    # Maximum size of a record beside key, value and headers: its length 5, attributes 1, deltas of
    # time and offset 10 and 5, lengths of key and value 5 each, number of headers 5.
    MOST_OVERHEAD = 36
    VIEW_SIZE = 16
    INLINE_SIZE = 12

cpdef enum Kind:
    SHORT = 1
    LONG = 2
    VIEW = 3
    FIXED = 4

cpdef enum Outcome:
    GOOD = 0
    BAD_KEY = 1
    BAD_VALUE = 2
    BAD_HEADERS = 3
    NULL_HEADER = 4
    BAD_HEADER_NAME = 5
    BAD_TIMESTAMP = 6
    BAD_PARTITION = 7
    TOO_LARGE = 8


cdef struct Column:
    # element i is data[ends[i]:ends[i + 1]], or as `kind` says
    int kind
    int64_t offset
    int64_t length
    const uint8_t* validity
    const uint8_t* ends
    const uint8_t* data
    int64_t data_size
    int64_t width
    int64_t buffer_count
    const uint8_t** buffers
    int64_t* buffer_sizes


cdef struct Table:
    int64_t rows
    Column key
    Column value
    bint has_headers
    Column lists
    Column elements
    Column names
    Column contents
    Column partitions
    Column timestamps
    int64_t multiplier
    int64_t divisor
    int64_t now


cdef struct Field:
    const uint8_t* at
    int64_t size


cdef struct Row:
    Field key
    Field value
    int64_t first_header
    int64_t header_count
    int64_t headers_size


cdef inline bint is_null(const Column* column, int64_t row) noexcept nogil:
    cdef int64_t i = column.offset + row
    return column.validity != NULL and not column.validity[i >> 3] >> (i & 7) & 1


cdef inline bint find_range(
    const Column* column, int64_t row, int64_t* start, int64_t* end
) noexcept nogil:
    """Find the range of element `row`; return False if it is not inside the data."""
    cdef int64_t i = column.offset + row
    if column.kind == SHORT:
        start[0] = load32(column.ends + 4 * i)
        end[0] = load32(column.ends + 4 * i + 4)
    elif column.kind == LONG:
        start[0] = load64(column.ends + 8 * i)
        end[0] = load64(column.ends + 8 * i + 8)
    else:
        start[0] = i * column.width
        end[0] = start[0] + column.width
    return 0 <= start[0] <= end[0] <= column.data_size


cdef inline Field find_view(const Column* column, int64_t row) noexcept nogil:
    cdef const uint8_t* view = column.ends + VIEW_SIZE * (column.offset + row)
    cdef int64_t size = load32(view)
    cdef int64_t buffer, start
    if size < 0:
        return Field(NULL, BAD_SIZE)
    if size <= INLINE_SIZE:
        return Field(view + 4, size)
    buffer = load32(view + 8)
    start = load32(view + 12)
    if not 0 <= buffer < column.buffer_count or start < 0:
        return Field(NULL, BAD_SIZE)
    if size > column.buffer_sizes[buffer] - start:
        return Field(NULL, BAD_SIZE)
    return Field(column.buffers[buffer] + start, size)


cdef inline Field find(const Column* column, int64_t row) noexcept nogil:
    """Find the bytes of element `row`."""
    cdef int64_t start, end
    if column.kind == 0 or is_null(column, row):
        return Field(NULL, NULL_SIZE)
    if column.kind == VIEW:
        return find_view(column, row)
    if unlikely(not find_range(column, row, &start, &end)):
        return Field(NULL, BAD_SIZE)
    return Field(column.data + start, end - start)


cdef inline int64_t field_size(int64_t size) noexcept nogil:
    return 1 if size < 0 else varint_size(size) + size


cdef inline Outcome find_headers(const Table* table, int64_t row, Row* found, bint check) noexcept nogil:
    """Find a row's headers and their size in bytes; with `check`, also check their names."""
    cdef int64_t end, i
    cdef Field name, content
    if is_null(&table.lists, row):
        return GOOD
    if not find_range(&table.lists, row, &found.first_header, &end):
        return BAD_HEADERS
    found.header_count = end - found.first_header
    for i in range(found.first_header, end):
        if is_null(&table.elements, i):
            return NULL_HEADER
        name = find(&table.names, i)
        content = find(&table.contents, i)
        if name.size == NULL_SIZE:
            return NULL_HEADER
        if name.size < 0 or content.size == BAD_SIZE:
            return BAD_HEADERS
        if check and not is_utf8(name.at, name.at + name.size):
            return BAD_HEADER_NAME
        found.headers_size += field_size(name.size) + field_size(content.size)
        if found.headers_size > INT32_MAX:
            return TOO_LARGE
    return GOOD


cdef inline Outcome find_row(const Table* table, int64_t row, Row* found, bint check) noexcept nogil:
    found.key = find(&table.key, row)
    found.value = find(&table.value, row)
    found.header_count = found.headers_size = 0
    if unlikely(found.key.size == BAD_SIZE):
        return BAD_KEY
    if unlikely(found.value.size == BAD_SIZE):
        return BAD_VALUE
    return find_headers(table, row, found, check) if table.has_headers else GOOD


cdef inline int64_t payload_size(const Row* row) noexcept nogil:
    """Return the size of the parts of a record that depend little on its batch."""
    cdef int64_t size = row.headers_size
    if row.key.size > 0:
        size += row.key.size
    if row.value.size > 0:
        size += row.value.size
    return size


cdef inline bint find_time(const Table* table, int64_t row, int64_t* milliseconds) noexcept nogil:
    cdef int64_t time
    if table.timestamps.kind == 0 or is_null(&table.timestamps, row):
        milliseconds[0] = table.now
        return True
    time = load64(table.timestamps.data + 8 * (table.timestamps.offset + row))
    if __builtin_mul_overflow(time, table.multiplier, &time):
        return False
    if time < 0:
        # Kafka's "no timestamp" is exact: rounding of negative numbers depends on the directives of
        # the including module.
        milliseconds[0] = -1
        return time == -table.divisor
    milliseconds[0] = time // table.divisor
    return True


cdef inline bint find_partition(const Table* table, int64_t row, int64_t* partition) noexcept nogil:
    if table.partitions.kind == 0 or is_null(&table.partitions, row):
        return False
    partition[0] = load32(table.partitions.data + 4 * (table.partitions.offset + row))
    return True


cdef class Columns:
    cdef Table table
    cdef list _kept
    cdef readonly int64_t rows

    cdef const uint8_t* _pointer(self, buffer, int64_t needed, str what) except? NULL
    cdef int _begin(self, Column* column, str what, source, int64_t rows) except -1
    cdef int _take(self, Column* column, str what, source, int64_t rows) except -1
    cdef int _take_buffers(self, Column* column, str what, list buffers) except -1
    cdef int _take_numbers(
        self, Column* column, str what, source, int64_t rows, int64_t width
    ) except -1
