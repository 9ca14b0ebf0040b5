"""Kafka's variable-length primitives, as the compiled encoders and decoders call them.

Readers take `(data, at)` and return `(value, position after it)`. They check each length against
the bytes that remain before they slice or allocate. `_compact` names are the flexible encodings of
KIP-482: an unsigned varint that holds the length plus one, 0 for null.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sized

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.wire.limits import DEFAULT_LIMITS
from kohort.wire.schema import Buffer

pack_format = struct.pack
unpack_format = struct.unpack_from

_pack_int16 = struct.Struct(">h").pack
_pack_int32 = struct.Struct(">i").pack
_unpack_int16 = struct.Struct(">h").unpack_from
_unpack_int32 = struct.Struct(">i").unpack_from

# The wire has no room for more in a classic string, and Kafka refuses more in a compact one.
_MAX_STRING = 0x7FFF
_MAX_TAGS = DEFAULT_LIMITS.max_tagged_fields


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_uvarint(data: memoryview, at: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits."""
    value = data[at]
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, at
    raise RemoteProtocolError("unsigned varint is longer than 32 bits")


def _slice_end(data: memoryview, at: int, length: int) -> int:
    end = at + length
    if length < 0 or end > len(data):
        raise RemoteProtocolError(f"length {length} exceeds the {len(data) - at} bytes that remain")
    return end


def _text(data: memoryview, at: int, end: int) -> str:
    try:
        return str(data[at:end], "utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"string is not UTF-8: {error.reason}") from None


# --- strings ---------------------------------------------------------------------------------


def write_string(out: bytearray, value: str) -> None:
    """Append a string with an int16 length."""
    encoded = _encoded(value)
    out += _pack_int16(len(encoded))
    out += encoded


def write_string_nullable(out: bytearray, value: str | None) -> None:
    """Append a string with an int16 length, -1 for null."""
    if value is None:
        out += b"\xff\xff"
    else:
        write_string(out, value)


def write_string_compact(out: bytearray, value: str) -> None:
    """Append a string with a compact length."""
    encoded = _encoded(value)
    write_uvarint(out, len(encoded) + 1)
    out += encoded


def write_string_compact_nullable(out: bytearray, value: str | None) -> None:
    """Append a string with a compact length, 0 for null."""
    if value is None:
        out.append(0)
    else:
        write_string_compact(out, value)


def _encoded(value: str) -> bytes:
    try:
        encoded = value.encode()
    except (UnicodeEncodeError, AttributeError) as error:
        raise LocalProtocolError(f"cannot write {value!r:.80} as a string: {error}") from None
    if len(encoded) > _MAX_STRING:
        raise LocalProtocolError(f"string of {len(encoded)} bytes exceeds {_MAX_STRING}")
    return encoded


def read_string(data: memoryview, at: int) -> tuple[str, int]:
    """Read a string with an int16 length."""
    (length,) = _unpack_int16(data, at)
    end = _slice_end(data, at + 2, length)
    return _text(data, at + 2, end), end


def read_string_nullable(data: memoryview, at: int) -> tuple[str | None, int]:
    """Read a string with an int16 length, -1 for null."""
    (length,) = _unpack_int16(data, at)
    if length == -1:
        return None, at + 2
    return read_string(data, at)


def read_string_compact(data: memoryview, at: int) -> tuple[str, int]:
    """Read a string with a compact length."""
    value, at = read_string_compact_nullable(data, at)
    if value is None:
        raise RemoteProtocolError("null where a string must be")
    return value, at


def read_string_compact_nullable(data: memoryview, at: int) -> tuple[str | None, int]:
    """Read a string with a compact length, 0 for null."""
    length, at = read_uvarint(data, at)
    if length == 0:
        return None, at
    if length - 1 > _MAX_STRING:
        raise RemoteProtocolError(f"string of {length - 1} bytes exceeds {_MAX_STRING}")
    end = _slice_end(data, at, length - 1)
    return _text(data, at, end), end


# --- bytes and records -----------------------------------------------------------------------


def write_bytes(out: bytearray, value: Buffer) -> None:
    """Append bytes with an int32 length."""
    out += _pack_int32(len(value))
    out += value


def write_bytes_nullable(out: bytearray, value: Buffer | None) -> None:
    """Append bytes with an int32 length, -1 for null."""
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        write_bytes(out, value)


def write_bytes_compact(out: bytearray, value: Buffer) -> None:
    """Append bytes with a compact length."""
    write_uvarint(out, len(value) + 1)
    out += value


def write_bytes_compact_nullable(out: bytearray, value: Buffer | None) -> None:
    """Append bytes with a compact length, 0 for null."""
    if value is None:
        out.append(0)
    else:
        write_bytes_compact(out, value)


def read_records(data: memoryview, at: int) -> tuple[memoryview, int]:
    """Read bytes with an int32 length, as a view without a copy."""
    (length,) = _unpack_int32(data, at)
    end = _slice_end(data, at + 4, length)
    return data[at + 4 : end], end


def read_records_nullable(data: memoryview, at: int) -> tuple[memoryview | None, int]:
    """Read bytes with an int32 length, -1 for null, as a view without a copy."""
    (length,) = _unpack_int32(data, at)
    if length == -1:
        return None, at + 4
    return read_records(data, at)


def read_records_compact(data: memoryview, at: int) -> tuple[memoryview, int]:
    """Read bytes with a compact length, as a view without a copy."""
    value, at = read_records_compact_nullable(data, at)
    if value is None:
        raise RemoteProtocolError("null where bytes must be")
    return value, at


def read_records_compact_nullable(data: memoryview, at: int) -> tuple[memoryview | None, int]:
    """Read bytes with a compact length, 0 for null, as a view without a copy."""
    length, at = read_uvarint(data, at)
    if length == 0:
        return None, at
    end = _slice_end(data, at, length - 1)
    return data[at:end], end


def read_bytes(data: memoryview, at: int) -> tuple[bytes, int]:
    """Read bytes with an int32 length."""
    value, at = read_records(data, at)
    return bytes(value), at


def read_bytes_nullable(data: memoryview, at: int) -> tuple[bytes | None, int]:
    """Read bytes with an int32 length, -1 for null."""
    value, at = read_records_nullable(data, at)
    return None if value is None else bytes(value), at


def read_bytes_compact(data: memoryview, at: int) -> tuple[bytes, int]:
    """Read bytes with a compact length."""
    value, at = read_records_compact(data, at)
    return bytes(value), at


def read_bytes_compact_nullable(data: memoryview, at: int) -> tuple[bytes | None, int]:
    """Read bytes with a compact length, 0 for null."""
    value, at = read_records_compact_nullable(data, at)
    return None if value is None else bytes(value), at


def read_uuid(data: memoryview, at: int) -> tuple[uuid.UUID, int]:
    """Read the 16 bytes of a UUID."""
    end = _slice_end(data, at, 16)
    return uuid.UUID(bytes=bytes(data[at:end])), end


# --- array counts ----------------------------------------------------------------------------


def write_count(out: bytearray, items: Sized) -> None:
    """Append the int32 count of an array."""
    out += _pack_int32(len(items))


def write_count_nullable(out: bytearray, items: Sized | None) -> None:
    """Append the int32 count of an array, -1 for null."""
    out += _pack_int32(-1 if items is None else len(items))


def write_count_compact(out: bytearray, items: Sized) -> None:
    """Append the compact count of an array."""
    write_uvarint(out, len(items) + 1)


def write_count_compact_nullable(out: bytearray, items: Sized | None) -> None:
    """Append the compact count of an array, 0 for null."""
    write_uvarint(out, 0 if items is None else len(items) + 1)


def _checked_count(data: memoryview, at: int, count: int, smallest: int) -> tuple[int, int]:
    if count < 0 or count * smallest > len(data) - at:
        raise RemoteProtocolError(
            f"array of {count} elements cannot fit into the {len(data) - at} bytes that remain"
        )
    return count, at


def read_count(data: memoryview, at: int, smallest: int) -> tuple[int, int]:
    """Read the int32 count of an array whose elements take `smallest` bytes or more."""
    (count,) = _unpack_int32(data, at)
    return _checked_count(data, at + 4, count, smallest)


def read_count_nullable(data: memoryview, at: int, smallest: int) -> tuple[int, int]:
    """Read the int32 count of an array that may be null; -1 when it is."""
    (count,) = _unpack_int32(data, at)
    if count == -1:
        return -1, at + 4
    return _checked_count(data, at + 4, count, smallest)


def read_count_compact(data: memoryview, at: int, smallest: int) -> tuple[int, int]:
    """Read the compact count of an array."""
    count, at = read_uvarint(data, at)
    return _checked_count(data, at, count - 1, smallest)


def read_count_compact_nullable(data: memoryview, at: int, smallest: int) -> tuple[int, int]:
    """Read the compact count of an array that may be null; -1 when it is."""
    count, at = read_uvarint(data, at)
    if count == 0:
        return -1, at
    return _checked_count(data, at, count - 1, smallest)


# --- nullable structures and tagged fields ---------------------------------------------------


def write_presence(out: bytearray, value: object | None) -> bool:
    """Append the int8 before a nullable structure and say whether the structure follows."""
    out += b"\xff" if value is None else b"\x01"
    return value is not None


def read_presence(data: memoryview, at: int) -> tuple[bool, int]:
    """Read the int8 before a nullable structure: negative means null."""
    return data[at] < 0x80, at + 1


def write_tags(out: bytearray, tags: list[tuple[int, bytearray]]) -> None:
    """Append tagged fields, given in the order of their numbers."""
    write_uvarint(out, len(tags))
    for number, content in tags:
        write_uvarint(out, number)
        write_uvarint(out, len(content))
        out += content


def read_tag_count(data: memoryview, at: int) -> tuple[int, int]:
    """Read the number of tagged fields."""
    count, at = read_uvarint(data, at)
    # The smallest tagged field is its number and a length of zero.
    if count > _MAX_TAGS or count * 2 > len(data) - at:
        raise RemoteProtocolError(f"{count} tagged fields exceed the limit or the message")
    return count, at


def read_tag(data: memoryview, at: int) -> tuple[int, int, int]:
    """Read the head of a tagged field: its number, where it ends, where its content starts."""
    number, at = read_uvarint(data, at)
    size, at = read_uvarint(data, at)
    return number, _slice_end(data, at, size), at


def check_tag_end(number: int, at: int, end: int) -> None:
    """Refuse a tagged field whose content is not exactly as long as it said."""
    if at != end:
        raise RemoteProtocolError(f"tagged field {number} ends at {at}, not at {end}")


def skip_tags(data: memoryview, at: int) -> int:
    """Pass over tagged fields of which none is known."""
    count, at = read_tag_count(data, at)
    for _ in range(count):
        _, at, _ = read_tag(data, at)
    return at
