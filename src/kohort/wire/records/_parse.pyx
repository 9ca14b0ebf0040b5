# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The loop over the records of a batch: no Python code, no allocation, all bounds checked.

The caller has reserved enough space for everything that the batch can contain.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kohort.wire.records._varint cimport likely, read_varint, unlikely

cdef extern from *:
    """
    #include <string.h>

    /* Copies of fixed size compile to a few wide moves, and as most values have the same size
    range,
       the branch is predicted. `room` bytes of the source can be read, and every destination has
       SLACK bytes more than it needs. */
    static inline void kohort_copy(
        uint8_t* to, const uint8_t* from, int64_t size, int64_t room
    ) {
        if (size <= 16 && room >= 16) memcpy(to, from, 16);
        else if (size <= 160 && room >= 160) memcpy(to, from, 160);
        else memcpy(to, from, (size_t)size);
    }
    """
    bint __builtin_add_overflow(int64_t a, int64_t b, int64_t* total) noexcept nogil
    void copy "kohort_copy"(
        uint8_t* to, const uint8_t* source, int64_t size, int64_t room
    ) noexcept nogil


# The largest number of milliseconds whose microseconds fit into 64 bits.
cdef int64_t MAX_TIMESTAMP = 9223372036854775


cdef struct Record:
    const uint8_t* end
    int64_t timestamp
    int64_t offset
    const uint8_t* key
    int64_t key_size
    const uint8_t* value
    int64_t value_size
    const uint8_t* headers
    int64_t header_count


cdef inline void append(
    Bytes* column, int64_t index, const uint8_t* at, int64_t size, const uint8_t* readable_end
) noexcept nogil:
    """Append `size` bytes as element `index`; a negative size means null."""
    if likely(size >= 0):
        copy(column.data + column.size, at, size, readable_end - at)
        column.size += size
    else:
        column.validity[index >> 3] &= <uint8_t>~(1 << (index & 7))
        column.nulls += 1
    column.ends[index + 1] = <int32_t>column.size


cdef inline int sequence(const uint8_t* at, const uint8_t* end, bint* good) noexcept nogil:
    """Return the length of the character at `at`, or of the invalid bytes in its place.

    Invalid UTF-8 is split as Unicode recommends and as Java and Python do: into the longest valid
    prefixes of a character.
    """
    cdef uint32_t first = at[0], second
    cdef int more, i
    good[0] = True
    if first < 0x80:
        return 1
    good[0] = False
    if first < 0xC2 or first > 0xF4:
        return 1
    more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
    if end - at < 2:
        return 1
    # overlong forms, surrogates and code points beyond Unicode are detected by the second byte
    second = at[1]
    if (
        second & 0xC0 != 0x80
        or (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F)
        or (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F)
    ):
        return 1
    for i in range(2, more + 1):
        if end - at <= i or at[i] & 0xC0 != 0x80:
            return i
    good[0] = True
    return more + 1


cdef bint is_utf8(const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef bint good = True
    while at < end and good:
        at += sequence(at, end, &good)
    return good


cdef void append_replaced(Bytes* column, int64_t index, const uint8_t* at, int64_t size) noexcept nogil:
    """Append a name as Java decodes it, with U+FFFD in place of invalid UTF-8."""
    cdef const uint8_t* end = at + size
    cdef uint8_t* to = column.data + column.size
    cdef bint good
    cdef int count, i
    while at < end:
        count = sequence(at, end, &good)
        if good:
            for i in range(count):
                to[i] = at[i]
            to += count
        else:
            to[0], to[1], to[2] = 0xEF, 0xBF, 0xBD
            to += 3
        at += count
    column.size = to - column.data
    column.ends[index + 1] = <int32_t>column.size


cdef Outcome parse_headers(
    const Batch* batch, Rows* rows, const uint8_t* at, const uint8_t* end, int64_t count
) noexcept nogil:
    """Append the headers of a record, which are the bytes from `at` to `end`."""
    cdef int64_t size, i, index
    if count < 0 or count > (end - at) // 2 or count > batch.max_headers:
        return BAD_HEADER_COUNT
    for i in range(count):
        index = rows.headers + i
        at = read_varint(at, end, 32, &size)
        if at == NULL:
            return BAD_VARINT
        if size < 0 or size > end - at:
            return BAD_FIELD
        if batch.keep_headers:
            if likely(is_utf8(at, at + size)):
                append(&rows.names, index, at, size, batch.readable_end)
            elif batch.room_for_odd_names:
                append_replaced(&rows.names, index, at, size)
            else:
                return ODD_NAME_FOUND
        at = read_varint(at + size, end, 32, &size)
        if at == NULL:
            return BAD_VARINT
        if size > end - at:
            return BAD_FIELD
        if batch.keep_headers:
            append(&rows.contents, index, at, size, batch.readable_end)
        if size > 0:
            at += size
    if at != end:
        return BAD_END
    if batch.keep_headers:
        rows.headers += count
    return GOOD


cdef inline Outcome read_field(
    const uint8_t** at, const uint8_t* end, const uint8_t** field, int64_t* size
) noexcept nogil:
    """Read a key or a value; a negative size means null."""
    cdef const uint8_t* start = read_varint(at[0], end, 32, size)
    if unlikely(start == NULL):
        return BAD_VARINT
    if unlikely(size[0] > end - start):
        return BAD_FIELD
    field[0] = start
    at[0] = start + (size[0] if size[0] > 0 else 0)
    return GOOD


cdef inline Outcome read_record(const uint8_t* at, Record* record) noexcept nogil:
    """Read the fields of the record that starts at `at`, after its length."""
    cdef Outcome outcome
    at = read_varint(at + 1, record.end, 64, &record.timestamp)  # skips the unused attributes
    if unlikely(at == NULL):
        return BAD_VARINT
    at = read_varint(at, record.end, 32, &record.offset)
    if unlikely(at == NULL):
        return BAD_VARINT
    outcome = read_field(&at, record.end, &record.key, &record.key_size)
    if unlikely(outcome != GOOD):
        return outcome
    outcome = read_field(&at, record.end, &record.value, &record.value_size)
    if unlikely(outcome != GOOD):
        return outcome
    record.headers = read_varint(at, record.end, 32, &record.header_count)
    if unlikely(record.headers == NULL):
        return BAD_VARINT
    if unlikely(record.header_count == 0 and record.headers != record.end):
        return BAD_END
    return GOOD


cdef inline int64_t microseconds(Rows* rows, const Record* record) noexcept nogil:
    """Return a record's timestamp, or the nearest one whose microseconds fit into 64 bits."""
    if likely(-MAX_TIMESTAMP <= record.timestamp <= MAX_TIMESTAMP):
        return record.timestamp * 1000
    if rows.clipped == 0:
        rows.first_clipped = record.offset
    rows.clipped += 1
    return 1000 * (MAX_TIMESTAMP if record.timestamp > 0 else -MAX_TIMESTAMP)


cdef inline Outcome add_record(const Batch* batch, Rows* rows, const Record* record) noexcept nogil:
    """Append a record as a row."""
    cdef Outcome outcome
    cdef int64_t row = rows.count
    if unlikely(record.header_count != 0):
        if batch.keep_headers and not batch.room_for_headers:
            return HEADERS_FOUND
        outcome = parse_headers(batch, rows, record.headers, record.end, record.header_count)
        if outcome != GOOD:
            return outcome
        if batch.keep_headers:
            rows.header_validity[row >> 3] |= <uint8_t>(1 << (row & 7))
            rows.with_headers += 1
    if batch.keep_headers:
        rows.header_ends[row + 1] = <int32_t>rows.headers
    if likely(batch.keep_keys):
        append(&rows.keys, row, record.key, record.key_size, batch.readable_end)
    if likely(batch.keep_values):
        append(&rows.values, row, record.value, record.value_size, batch.readable_end)
    rows.offsets[row] = record.offset
    rows.timestamps[row] = microseconds(rows, record)
    rows.count = row + 1
    return GOOD


cdef Outcome parse(const Batch* batch, Rows* target) noexcept nogil:
    """Append the records of a batch that are between its two offsets, or none of them."""
    cdef Rows rows = target[0]  # a copy, which the compiler can keep in registers
    cdef Record record
    cdef const uint8_t* at = batch.records
    cdef int64_t length, i
    cdef Outcome outcome
    for i in range(batch.count):
        at = read_varint(at, batch.end, 32, &length)
        if unlikely(at == NULL):
            return BAD_VARINT
        if unlikely(length < 1 or length > batch.end - at):
            return BAD_LENGTH
        record.end = at + length
        outcome = read_record(at, &record)
        if unlikely(outcome != GOOD):
            return outcome
        if unlikely(<uint64_t>record.offset > <uint64_t>batch.last_offset_delta):
            return BAD_OFFSET
        record.offset += batch.base_offset
        if unlikely(
            __builtin_add_overflow(batch.base_timestamp, record.timestamp, &record.timestamp)
        ):
            return BAD_TIMESTAMP
        if batch.has_append_time:
            record.timestamp = batch.append_time
        if record.offset >= batch.from_offset and record.offset < batch.to_offset:
            outcome = add_record(batch, &rows, &record)
            if unlikely(outcome != GOOD):
                return outcome
        at = record.end
    if at != batch.end:
        return BAD_TAIL
    target[0] = rows
    return GOOD
