"""Every codec in every framing, and what a bomb costs."""

from __future__ import annotations

import gzip
import tracemalloc
from contextlib import suppress

import cramjam
import lz4.frame  # type: ignore[import-untyped]  # it has no type information
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import RemoteProtocolError
from kohort.wire.codec.limits import DEFAULT_LIMITS, Limits
from kohort.wire.records import Compression, Record, RecordBatchBuilder, decode_records
from kohort.wire.records.arrow import Fetched, decode_to_arrow
from kohort.wire.records.compression import compress, decompress
from tests.wire.records.strategies import CODECS, batch_of

MIB = 1024 * 1024
REAL_CODECS = [codec for codec in Compression if codec is not Compression.NONE]


@given(CODECS, st.binary(max_size=200), st.integers(0, 2000))
def test_round_trip(codec: Compression, data: bytes, times: int) -> None:
    whole = data * times
    assert decompress(codec, compress(codec, whole)) == whole
    assert decompress(codec, memoryview(compress(codec, whole))) == whole


def test_others_read_ours() -> None:
    data = b"some bytes " * 10_000
    assert gzip.decompress(compress(Compression.GZIP, data)) == data
    assert lz4.frame.decompress(compress(Compression.LZ4, data)) == data
    assert zstandard.decompress(compress(Compression.ZSTD, data)) == data


def test_frames_that_do_not_say_their_size() -> None:
    data = bytes(i * i & 255 for i in range(300_000)) + bytes(1_000_000)
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    assert decompress(Compression.ZSTD, stream.compress(data) + stream.flush()) == data
    frame = lz4.frame.compress(data, store_size=False, block_linked=False)
    assert decompress(Compression.LZ4, frame) == data
    assert (
        decompress(Compression.GZIP, gzip.compress(data[:999]) + gzip.compress(data[999:])) == data
    )


def test_snappy_raw_and_framed() -> None:
    data = b"snappy " * 30_000
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert decompress(Compression.SNAPPY, raw) == data
    framed = compress(Compression.SNAPPY, data)
    assert framed.startswith(b"\x82SNAPPY\x00")
    assert decompress(Compression.SNAPPY, framed) == data
    other_version = framed[:8] + b"\x00\x00\x00\x05\x00\x00\x00\x02" + framed[16:]
    assert decompress(Compression.SNAPPY, other_version) == data


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_cut_or_damaged_at_any_byte(codec: Compression) -> None:
    data = b"key and value " * 40
    whole = compress(codec, data)
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x55
        for candidate in (whole[:at], bytes(damaged)):
            try:
                result = decompress(codec, candidate, Limits(max_decompressed_bytes=MIB))
            except RemoteProtocolError:
                continue
            # Not every format has a checksum, but nothing may come out longer than it may be.
            assert len(result) <= MIB


@given(CODECS, st.binary(max_size=100))
def test_any_bytes(codec: Compression, data: bytes) -> None:
    framed = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + data
    for candidate in (data, framed):
        with suppress(RemoteProtocolError):
            decompress(codec, candidate, Limits(max_decompressed_bytes=MIB))


def test_the_limit_is_met_exactly() -> None:
    limits = Limits(decompressed_bytes_always_allowed=0, max_decompressed_bytes=100_000)
    for codec in REAL_CODECS:
        noise = bytes(i * i * 7 >> 3 & 255 for i in range(100_001))
        fits, too_large = compress(codec, noise[:-1]), compress(codec, noise)
        assert len(decompress(codec, fits, limits)) == 100_000
        with pytest.raises(RemoteProtocolError, match="limit of 100000 bytes"):
            decompress(codec, too_large, limits)


def bomb(codec: Compression) -> bytes:
    """Return a batch whose records are zeros without end, about 1 MB where the codec can."""
    if codec is Compression.GZIP:
        zeros = bytes(cramjam.gzip.compress(bytes(64 * MIB), level=9)) * 16  # members are joined
    elif codec is Compression.SNAPPY:
        zeros = bytes(cramjam.snappy.compress_raw(bytes(256 * MIB)))
    elif codec is Compression.LZ4:
        zeros = bytes(cramjam.lz4.compress(bytes(256 * MIB), level=0))
    else:
        zeros = bytes(cramjam.zstd.compress(bytes(256 * MIB))) * 128
    return batch_of(zeros, count=1, attributes=int(codec))


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_a_bomb_costs_an_error_and_not_memory(codec: Compression) -> None:
    batch = bomb(codec)
    allowed = DEFAULT_LIMITS.max_decompressed_bytes
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match="more than the limit"):
            decode_records(batch)
        with pytest.raises(RemoteProtocolError, match="more than the limit"):
            decode_to_arrow([Fetched("t", 0, batch)])
        assert tracemalloc.get_traced_memory()[1] <= 1.05 * allowed
    finally:
        tracemalloc.stop()


def test_honest_zeros_are_no_bomb() -> None:
    for codec in REAL_CODECS:
        builder = RecordBatchBuilder()
        builder.append(0, None, bytes(4 * MIB))
        batch = builder.build(codec)
        assert decode_records(batch) == [Record(0, 0, None, bytes(4 * MIB))]
