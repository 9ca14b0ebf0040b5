# Data structures of the record loop.

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    # Bytes of each buffer beyond its capacity, for copies in wide moves.
    SLACK = 160

cdef enum Outcome:
    GOOD
    BAD_VARINT
    BAD_LENGTH
    BAD_END
    BAD_FIELD
    BAD_OFFSET
    BAD_TIMESTAMP
    BAD_HEADER_COUNT
    BAD_TAIL
    # not an error: there are headers, and no space is reserved for them yet
    HEADERS_FOUND
    # nor this: a header name is not UTF-8, and its replacement takes more space
    ODD_NAME_FOUND


cdef struct Bytes:
    # a column of byte strings: element i is data[ends[i]:ends[i + 1]]
    int32_t* ends
    uint8_t* data
    uint8_t* validity
    int64_t size
    int64_t nulls


cdef struct Rows:
    # the columns that differ between records; headers are a column of lists
    int64_t count
    Bytes keys
    Bytes values
    int64_t* offsets
    int64_t* timestamps
    int32_t* header_ends
    uint8_t* header_validity
    int64_t headers
    int64_t with_headers
    Bytes names
    Bytes contents
    # number of rows with a clipped time, and the offset of the first of them
    int64_t clipped
    int64_t first_clipped


cdef struct Batch:
    const uint8_t* records
    const uint8_t* end
    const uint8_t* readable_end
    int64_t count
    int64_t base_offset
    int64_t last_offset_delta
    int64_t base_timestamp
    int64_t append_time
    bint has_append_time
    int64_t from_offset
    int64_t to_offset
    int64_t max_headers
    # whether keys and values are columns
    bint keep_keys
    bint keep_values
    # whether headers are a column, whether it has space for those of this batch, and for names of
    # three times their size
    bint keep_headers
    bint room_for_headers
    bint room_for_odd_names


cdef Outcome parse(const Batch* batch, Rows* target) noexcept nogil

cdef bint is_utf8(const uint8_t* at, const uint8_t* end) noexcept nogil
