# Kafka's varints: zig-zag encoded, seven bits per byte, least significant first, at most 5 bytes
# for an int32 and 10 for an int64. Readers return the position after the varint, or NULL if it is
# incomplete or does not fit its type. Included by each kernel, so that the C compiler can inline
# it.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from *:
    # macros that Cython defines in generated code
    bint likely(bint condition) noexcept nogil
    bint unlikely(bint condition) noexcept nogil


cdef inline const uint8_t* read_long_varint(
    const uint8_t* at, const uint8_t* end, int bits, int64_t* value
) noexcept nogil:
    cdef uint64_t result = 0
    cdef uint64_t byte
    cdef int shift = 0
    while at < end and shift < bits:
        byte = at[0]
        at += 1
        if bits - shift < 7 and byte >> (bits - shift):
            return NULL
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = <int64_t>(result >> 1) ^ -<int64_t>(result & 1)
            return at
        shift += 7
    return NULL


cdef inline const uint8_t* read_varint(
    const uint8_t* at, const uint8_t* end, int bits, int64_t* value
) noexcept nogil:
    cdef uint64_t result
    if likely(at < end and at[0] < 0x80):
        result = at[0]
        at += 1
    elif likely(end - at >= 2 and at[1] < 0x80):
        result = <uint64_t>(at[0] & 0x7F) | <uint64_t>at[1] << 7
        at += 2
    elif likely(end - at >= 3 and at[2] < 0x80):
        result = (
            <uint64_t>(at[0] & 0x7F) | <uint64_t>(at[1] & 0x7F) << 7 | <uint64_t>at[2] << 14
        )
        at += 3
    else:
        return read_long_varint(at, end, bits, value)
    value[0] = <int64_t>(result >> 1) ^ -<int64_t>(result & 1)
    return at


cdef inline int varint_size(int64_t value) noexcept nogil:
    cdef uint64_t rest = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size = 1
    while rest > 0x7F:
        rest >>= 7
        size += 1
    return size


cdef inline uint8_t* write_varint(uint8_t* at, int64_t value) noexcept nogil:
    cdef uint64_t rest = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while rest > 0x7F:
        at[0] = <uint8_t>(rest & 0x7F | 0x80)
        rest >>= 7
        at += 1
    at[0] = <uint8_t>rest
    return at + 1
