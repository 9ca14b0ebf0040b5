"""Any bytes give a value or a RemoteProtocolError, from all decoders the same."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import RemoteProtocolError
from kohort.wire.codec.limits import Limits
from kohort.wire.records import Record, decode_records, encode_batch, iter_batches
from kohort.wire.records.arrow import Fetched, decode_to_arrow
from tests.wire.records import reference
from tests.wire.records.strategies import batch_of, record_lists, with_crc
from tests.wire.records.test_arrow import table_rows

MOST = 2**63 // 1000
LIMITS = Limits(max_decompressed_bytes=1 << 20)

RECORDS = [
    Record(0, 10**12, b"key", b"value" * 30, (("name", b"content"), ("n", None))),
    Record(1, 10**12 + 70, None, b""),
    Record(70, 10**12 - 5, b"k" * 130, None, (("ü", b""),)),
]
BATCH = encode_batch(RECORDS)


def by_kernel(batch: bytes) -> list[Record] | None:
    try:
        decoded = decode_to_arrow([Fetched("t", 0, batch)], limits=LIMITS).batch
    except RemoteProtocolError:
        return None
    return [row[3] for row in table_rows(decoded)]


def by_objects(batch: bytes) -> list[Record] | None:
    try:
        return decode_records(batch, limits=LIMITS)
    except RemoteProtocolError:
        return None


def by_reference(batch: bytes) -> list[Record] | None:
    try:
        return [row.record for row in reference.decode(batch)]
    except (reference.MalformedError, UnicodeDecodeError):
        return None


def agree(batch: bytes) -> None:
    """Check that the three decoders give equal values or all refuse a batch with a good header."""
    objects, kernel, expected = by_objects(batch), by_kernel(batch), by_reference(batch)
    assert objects == expected
    if expected is not None:  # as a column of microseconds can hold it
        expected = [
            record._replace(timestamp=max(-MOST, min(MOST, record.timestamp)))
            for record in expected
        ]
    assert kernel == expected


def test_every_flipped_bit_of_the_records() -> None:
    for at in range(61, len(BATCH)):
        for bit in range(8):
            flipped = bytearray(BATCH)
            flipped[at] ^= 1 << bit
            agree(with_crc(bytes(flipped)))


def test_every_byte_of_the_header_replaced() -> None:
    for at in range(61):
        for value in (0, 1, 2, 0x08, 0x20, 0x7F, 0x80, 0xFF):
            changed = bytearray(BATCH)
            changed[at] = value
            batch = with_crc(bytes(changed)) if at not in range(17, 21) else bytes(changed)
            by_kernel(batch)
            by_objects(batch)
            by_kernel(batch + BATCH)


def test_records_cut_at_every_byte() -> None:
    section = BATCH[61:]
    for size in range(len(section)):
        for count in range(5):
            agree(batch_of(section[:size], count))
    for count in range(5):
        agree(batch_of(section, count))
        agree(batch_of(section + b"\0", count))


@given(st.binary(max_size=300), st.integers(0, 8))
def test_any_records(section: bytes, count: int) -> None:
    agree(batch_of(section, count))


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    by_kernel(data)
    by_objects(data)
    with suppress(RemoteProtocolError):
        list(iter_batches(data))


FIELDS = st.one_of(
    st.integers(-2, 200),
    st.sampled_from([2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 2**32, -(2**40)]),
)


def varint(value: int, padding: int = 0) -> bytes:
    """Return a zig-zag varint, with `padding` bytes more than it needs."""
    rest = (value << 1) ^ (-1 if value < 0 else 0)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    for _ in range(padding):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


@st.composite
def hostile_records(draw: st.DrawFn) -> bytes:
    """Return one record that is nearly right: any of its numbers may be anything."""

    def number(honest: int) -> bytes:
        value = draw(st.just(honest) | st.just(honest) | FIELDS)
        return varint(value, draw(st.sampled_from([0, 0, 0, 0, 1, 4, 9])))

    def field(data: bytes | None) -> bytes:
        return number(-1 if data is None else len(data)) + (data or b"")

    key, value = draw(st.none() | st.binary(max_size=9)), draw(st.none() | st.binary(max_size=150))
    names = draw(st.lists(st.binary(max_size=4), max_size=3))
    body = b"\0" + number(5) + number(3) + field(key) + field(value) + number(len(names))
    body += b"".join(field(name) + field(key) for name in names)
    return number(len(body)) + body


@given(st.lists(hostile_records(), min_size=1, max_size=4))
def test_nearly_right_records(records: list[bytes]) -> None:
    agree(batch_of(b"".join(records), len(records)))


@given(record_lists(), st.data())
def test_spliced_batches(records: list[Record], data: st.DataObject) -> None:
    batch = bytearray(encode_batch(records))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(61, len(batch) - 1))
        size = data.draw(st.integers(0, 6))
        batch[at : at + size] = data.draw(st.binary(min_size=size, max_size=size))
    agree(batch_of(bytes(batch[61:]), len(records), attributes=0, last_offset_delta=5000))


@pytest.mark.parametrize("bits", [32, 64])
def test_varints_at_their_ends(bits: int) -> None:
    edge = 1 << (bits - 1)
    for value in (0, 63, 64, -64, -65, 8191, 8192, edge - 1, -edge, edge, -edge - 1):
        for padding in range(11):
            number = varint(value, padding)
            body = b"\0\0" + number if bits == 32 else b"\0" + number + b"\0"
            body += b"\1\1\0"
            agree(batch_of(varint(len(body)) + body, 1, last_offset_delta=2**31 - 1))


def test_header_names_are_utf8_as_python_has_it() -> None:
    for name in (
        *(bytes([first, second]) for first in range(256) for second in (0x20, 0x7F, 0x80, 0xBF)),
        *(bytes([0xE0 + a, b, 0x80]) for a in range(16) for b in range(0x70, 0xC8)),
        *(bytes([0xF0 + a, b, 0x80, 0xBF]) for a in range(8) for b in range(0x70, 0xC8)),
        b"\xf0\x90\x80",
        b"\xe2\x82",
        "ü€𝄞".encode(),
    ):
        body = b"\0\0\0\1\1" + varint(1) + varint(len(name)) + name + varint(-1)
        agree(batch_of(varint(len(body)) + body, 1))


def test_counts_without_bytes_allocate_nothing() -> None:
    before = pa.default_memory_pool().max_memory()
    for count in (2**31 - 1, 4 * 1024 * 1024, 1000):
        batch = batch_of(b"\x0c\0\0\0\1\1\0", count, last_offset_delta=2**31 - 1)
        with pytest.raises(RemoteProtocolError):
            decode_to_arrow([Fetched("t", 0, batch * 50)])
    assert pa.default_memory_pool().max_memory() < before + (1 << 20)
