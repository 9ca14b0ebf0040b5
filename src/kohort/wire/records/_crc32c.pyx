# cython: language_level=3, freethreading_compatible=True
"""CRC-32C (Castagnoli), with the instructions of the processor.

The usual library accepts only `bytes`, so each batch in a larger buffer would be copied to be
checked, and it cannot be called from C without the interpreter lock. Tests compare the results with
that library's.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #if defined(__x86_64__) && defined(__GNUC__)
      #include <immintrin.h>
      #define KOHORT_CRC_WIDE
      #define KOHORT_CRC_TARGET __attribute__((target("sse4.2")))
      #define KOHORT_CRC_PRESENT __builtin_cpu_supports("sse4.2")
      #define KOHORT_CRC_WORD(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
    #elif defined(__ARM_FEATURE_CRC32)
      #include <arm_acle.h>
      #define KOHORT_CRC_TARGET
      #define KOHORT_CRC_PRESENT 1
      #define KOHORT_CRC_WORD(crc, word) __crc32cd((crc), (word))
    #endif

    /* The instruction takes three cycles and one can start per cycle, so three runs of this many
       bytes are summed in parallel. Longer runs leave longer tails, which are summed one by one. */
    #define KOHORT_CRC_RUN 1024

    static uint32_t kohort_crc_bytes[8][256];  /* one byte followed by 0..7 zeros */
    static uint32_t kohort_crc_skip[4][256];   /* a byte of a CRC, then KOHORT_CRC_RUN zeros */

    static uint32_t kohort_crc_portable(uint32_t crc, const uint8_t* p, size_t n) {
        for (; n >= 8; p += 8, n -= 8) {
            crc = kohort_crc_bytes[7][p[0] ^ (crc & 255)]
                ^ kohort_crc_bytes[6][p[1] ^ (crc >> 8 & 255)]
                ^ kohort_crc_bytes[5][p[2] ^ (crc >> 16 & 255)]
                ^ kohort_crc_bytes[4][p[3] ^ (crc >> 24)]
                ^ kohort_crc_bytes[3][p[4]] ^ kohort_crc_bytes[2][p[5]]
                ^ kohort_crc_bytes[1][p[6]] ^ kohort_crc_bytes[0][p[7]];
        }
        while (n--) crc = crc >> 8 ^ kohort_crc_bytes[0][(crc ^ *p++) & 255];
        return crc;
    }

    static void kohort_crc_prepare(void) {
        static const uint8_t zeros[KOHORT_CRC_RUN];
        for (uint32_t b = 0; b < 256; b++) {
            uint32_t crc = b;
            for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
            kohort_crc_bytes[0][b] = crc;
        }
        for (int k = 1; k < 8; k++)
            for (uint32_t b = 0; b < 256; b++) {
                uint32_t crc = kohort_crc_bytes[k - 1][b];
                kohort_crc_bytes[k][b] = crc >> 8 ^ kohort_crc_bytes[0][crc & 255];
            }
        for (int k = 0; k < 4; k++)
            for (uint32_t b = 0; b < 256; b++)
                kohort_crc_skip[k][b] = kohort_crc_portable(b << 8 * k, zeros, KOHORT_CRC_RUN);
    }

    #ifdef KOHORT_CRC_WORD
    static uint32_t kohort_crc_after_run(uint32_t crc) {
        return kohort_crc_skip[0][crc & 255] ^ kohort_crc_skip[1][crc >> 8 & 255]
             ^ kohort_crc_skip[2][crc >> 16 & 255] ^ kohort_crc_skip[3][crc >> 24];
    }

    static uint64_t kohort_crc_load(const uint8_t* p) {
        uint64_t word;
        memcpy(&word, p, 8);
        return word;
    }

    KOHORT_CRC_TARGET
    static uint32_t kohort_crc_hardware(uint32_t crc, const uint8_t* p, size_t n) {
        for (; n >= 3 * KOHORT_CRC_RUN; p += 3 * KOHORT_CRC_RUN, n -= 3 * KOHORT_CRC_RUN) {
            uint32_t second = 0, third = 0;
            for (size_t i = 0; i < KOHORT_CRC_RUN; i += 8) {
                crc = KOHORT_CRC_WORD(crc, kohort_crc_load(p + i));
                second = KOHORT_CRC_WORD(second, kohort_crc_load(p + i + KOHORT_CRC_RUN));
                third = KOHORT_CRC_WORD(third, kohort_crc_load(p + i + 2 * KOHORT_CRC_RUN));
            }
            crc = kohort_crc_after_run(kohort_crc_after_run(crc) ^ second) ^ third;
        }
        for (; n >= 8; p += 8, n -= 8) crc = KOHORT_CRC_WORD(crc, kohort_crc_load(p));
        return kohort_crc_portable(crc, p, n);
    }

    #ifdef KOHORT_CRC_WIDE
    /* Newer processors multiply polynomials 64 bytes at a time: bytes at distance WIDE from the end
       are replaced by their contribution WIDE bytes later, until only WIDE bytes are left. */
    #define KOHORT_CRC_WIDE_BYTES 256
    static uint64_t kohort_crc_fold_low, kohort_crc_fold_high;
    static int kohort_crc_is_wide;

    static uint64_t kohort_crc_power(int n) {  /* x to the n, bits reversed, in the upper half */
        uint32_t power = 0x80000000u;
        while (n--) power = power >> 1 ^ (power & 1 ? 0x82f63b78u : 0);
        return (uint64_t)power << 32;
    }

    static void kohort_crc_prepare_wide(void) {
        /* one less than the distance, as a product of reversed polynomials is one bit short */
        kohort_crc_fold_low = kohort_crc_power(8 * KOHORT_CRC_WIDE_BYTES + 63);
        kohort_crc_fold_high = kohort_crc_power(8 * KOHORT_CRC_WIDE_BYTES - 1);
        kohort_crc_is_wide =
            __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
    }

    __attribute__((target("avx512f,vpclmulqdq,sse4.2")))
    static uint32_t kohort_crc_wide(uint32_t crc, const uint8_t* p, size_t n) {
        const __m512i fold = _mm512_broadcast_i32x4(
            _mm_set_epi64x((int64_t)kohort_crc_fold_high, (int64_t)kohort_crc_fold_low));
        __m512i sums[4];
        uint8_t rest[KOHORT_CRC_WIDE_BYTES];
        for (int i = 0; i < 4; i++) sums[i] = _mm512_loadu_si512(p + 64 * i);
        sums[0] = _mm512_xor_si512(
            sums[0], _mm512_inserti32x4(_mm512_setzero_si512(), _mm_cvtsi32_si128((int)crc), 0));
        for (p += sizeof rest, n -= sizeof rest; n >= sizeof rest; p += sizeof rest, n -= sizeof rest)
            for (int i = 0; i < 4; i++)
                sums[i] = _mm512_ternarylogic_epi64(
                    _mm512_clmulepi64_epi128(sums[i], fold, 0x00),
                    _mm512_clmulepi64_epi128(sums[i], fold, 0x11),
                    _mm512_loadu_si512(p + 64 * i), 0x96);
        for (int i = 0; i < 4; i++) _mm512_storeu_si512(rest + 64 * i, sums[i]);
        return kohort_crc_hardware(kohort_crc_hardware(0, rest, sizeof rest), p, n);
    }
    #endif

    static uint32_t kohort_crc(uint32_t crc, const uint8_t* p, size_t n) {
        #ifdef KOHORT_CRC_WIDE
        if (kohort_crc_is_wide && n >= 2 * KOHORT_CRC_WIDE_BYTES) return kohort_crc_wide(crc, p, n);
        #endif
        return KOHORT_CRC_PRESENT ? kohort_crc_hardware(crc, p, n) : kohort_crc_portable(crc, p, n);
    }
    #else
    #define kohort_crc kohort_crc_portable
    #endif

    #ifndef KOHORT_CRC_WIDE
    static void kohort_crc_prepare_wide(void) {}
    #endif
    """
    void kohort_crc_prepare() noexcept nogil
    void kohort_crc_prepare_wide() noexcept nogil
    uint32_t kohort_crc(uint32_t crc, const uint8_t* data, size_t size) noexcept nogil
    uint32_t kohort_crc_portable(uint32_t crc, const uint8_t* data, size_t size) noexcept nogil


cdef uint32_t crc32c_extend(uint32_t crc, const uint8_t* data, size_t size) noexcept nogil:
    return ~kohort_crc(~crc, data, size)


def crc32c(data, uint32_t crc=0):
    """Return the CRC-32C of `data`, or of `data` appended to the bytes with checksum `crc`."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            crc = crc32c_extend(crc, <const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return crc


def _portable_crc32c(data, uint32_t crc=0):
    """Compute the same without special instructions, for the tests."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        crc = ~kohort_crc_portable(~crc, <const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return crc


kohort_crc_prepare()
kohort_crc_prepare_wide()
