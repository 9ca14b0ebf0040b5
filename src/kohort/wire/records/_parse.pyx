# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The loop over the records of a batch: no Python, no allocation, every bound checked.

The caller has made room for as much as the batch can hold.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kohort.wire.records._varint cimport likely, read_varint, unlikely

cdef extern from *:
    """
    #include <string.h>

    /* Copies of a fixed size compile to a few wide moves. `room` bytes of the source may be read,
       and every destination has SLACK bytes more than it needs. */
    static inline void kohort_copy(
        uint8_t* to, const uint8_t* from, int64_t size, int64_t room
    ) {
        if (size <= 16 && room >= 16) memcpy(to, from, 16);
        else if (size <= 128 && room >= 128) memcpy(to, from, 128);
        else memcpy(to, from, (size_t)size);
    }
    """
    bint __builtin_add_overflow(int64_t a, int64_t b, int64_t* total) noexcept nogil
    void copy "kohort_copy"(
        uint8_t* to, const uint8_t* source, int64_t size, int64_t room
    ) noexcept nogil


# Milliseconds whose microseconds fit into 64 bits.
cdef int64_t MAX_TIMESTAMP = 9223372036854775


cdef inline int64_t add(int64_t a, int64_t b) noexcept nogil:
    """Add what may be anything; a sum that does not fit becomes one that no timestamp has."""
    cdef int64_t total
    return INT64_MAX if __builtin_add_overflow(a, b, &total) else total


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


cdef bint is_utf8(const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef uint32_t first, second
    cdef int more
    while at < end:
        first = at[0]
        at += 1
        if first < 0x80:
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
        if end - at < more:
            return False
        # overlong forms, surrogates and what is beyond Unicode show in the second byte
        second = at[0]
        if (
            (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F)
            or (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F)
        ):
            return False
        for _ in range(more):
            if at[0] & 0xC0 != 0x80:
                return False
            at += 1
    return True


cdef Outcome parse_headers(
    const Batch* batch, Rows* rows, const uint8_t* at, const uint8_t* end, int64_t count
) noexcept nogil:
    """Append the headers of one record, which take the bytes from `at` to `end`."""
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
        if not is_utf8(at, at + size):
            return BAD_HEADER_NAME
        if batch.keep_headers:
            append(&rows.names, index, at, size, batch.readable_end)
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


cdef Outcome parse(const Batch* batch, Rows* target) noexcept nogil:
    """Append the records of a batch that are between its two offsets."""
    cdef Rows rows = target[0]
    cdef const uint8_t* at = batch.records
    cdef const uint8_t* batch_end = batch.end
    cdef const uint8_t* end
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef int64_t length, timestamp, offset, key_size, value_size, headers
    cdef int64_t remaining = batch.count
    cdef Outcome outcome
    while remaining > 0:
        remaining -= 1
        at = read_varint(at, batch_end, 32, &length)
        if unlikely(at == NULL):
            return BAD_VARINT
        if unlikely(length < 1 or length > batch_end - at):
            return BAD_LENGTH
        end = at + length
        key = read_varint(at + 1, end, 64, &timestamp)
        if unlikely(key == NULL):
            return BAD_VARINT
        key = read_varint(key, end, 32, &offset)
        if unlikely(key == NULL):
            return BAD_VARINT
        if unlikely(<uint64_t>offset > <uint64_t>batch.last_offset_delta):
            return BAD_OFFSET
        key = read_varint(key, end, 32, &key_size)
        if unlikely(key == NULL):
            return BAD_VARINT
        if unlikely(key_size > end - key):
            return BAD_FIELD
        value = read_varint(key + (key_size if key_size > 0 else 0), end, 32, &value_size)
        if unlikely(value == NULL):
            return BAD_VARINT
        if unlikely(value_size > end - value):
            return BAD_FIELD
        at = read_varint(value + (value_size if value_size > 0 else 0), end, 32, &headers)
        if unlikely(at == NULL):
            return BAD_VARINT
        if unlikely(headers == 0 and at != end):
            return BAD_END
        timestamp = batch.append_time if batch.has_append_time else add(batch.base_timestamp, timestamp)
        if unlikely(timestamp > MAX_TIMESTAMP or timestamp < -MAX_TIMESTAMP):
            return BAD_TIMESTAMP
        offset += batch.base_offset
        if offset >= batch.from_offset and offset < batch.to_offset:
            if unlikely(headers != 0):
                if batch.keep_headers and not batch.room_for_headers:
                    return HEADERS_FOUND
                outcome = parse_headers(batch, &rows, at, end, headers)
                if outcome != GOOD:
                    return outcome
                if batch.keep_headers:
                    rows.header_validity[rows.count >> 3] |= <uint8_t>(1 << (rows.count & 7))
                    rows.with_headers += 1
            if batch.keep_headers:
                rows.header_ends[rows.count + 1] = <int32_t>rows.headers
            append(&rows.keys, rows.count, key, key_size, batch.readable_end)
            append(&rows.values, rows.count, value, value_size, batch.readable_end)
            rows.offsets[rows.count] = offset
            rows.timestamps[rows.count] = timestamp * 1000
            rows.count += 1
        at = end
    if at != batch_end:
        return BAD_TAIL
    target[0] = rows
    return GOOD
