"""Functions that compiled encoders and decoders call: varints, tagged fields, errors.

Readers take `(data, at)` and return `(value, position after it)`.
"""

from __future__ import annotations

import struct
import uuid
from typing import NoReturn

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.wire.codec.limits import DEFAULT_LIMITS

pack = struct.pack
unpack_from = struct.unpack_from
pack_int16 = struct.Struct(">h").pack
pack_int32 = struct.Struct(">i").pack
unpack_int16 = struct.Struct(">h").unpack_from
unpack_int32 = struct.Struct(">i").unpack_from

MAX_STRING = DEFAULT_LIMITS.max_string_bytes
MAX_ELEMENTS = DEFAULT_LIMITS.max_request_elements
_MAX_TAGS = DEFAULT_LIMITS.max_tagged_fields


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_uvarint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, at
    raise RemoteProtocolError("unsigned varint is longer than 32 bits")


def read_long_size(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Read a compact length or count; it is encoded plus one, so that zero means null."""
    value, at = read_uvarint(data, at)
    return value - 1, at


def read_uuid(data: bytes | memoryview, at: int) -> uuid.UUID:
    """Read a UUID."""
    try:
        return uuid.UUID(bytes=bytes(data[at : at + 16]))
    except ValueError:
        raise RemoteProtocolError("UUID of fewer than 16 bytes") from None


def refuse_elements() -> NoReturn:
    """Raise an error for a request whose arrays have too many elements in total."""
    raise RemoteProtocolError(f"more than {MAX_ELEMENTS} elements in one request")


def refuse_size(size: int) -> NoReturn:
    """Raise an error for an invalid length or count."""
    raise RemoteProtocolError(f"length or count {size} is null, too large or beyond the data")


def refuse_string(size: int) -> NoReturn:
    """Raise an error for a string that is too long to encode, given its size in bytes."""
    raise LocalProtocolError(f"string of {size} bytes; the limit is {MAX_STRING}")


def refuse_field(name: str, version: int) -> NoReturn:
    """Raise an error for a field that a version lacks, and whose value is not the default."""
    raise LocalProtocolError(f"version {version} has no {name}, and its value cannot be left out")


def write_tags(out: bytearray, tags: list[tuple[int, bytearray]]) -> None:
    """Append tagged fields, passed in the order of their numbers."""
    write_uvarint(out, len(tags))
    for number, content in tags:
        write_uvarint(out, number)
        write_uvarint(out, len(content))
        out += content


def read_tag_count(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Read the number of tagged fields."""
    count, at = read_uvarint(data, at)
    if count > _MAX_TAGS:
        raise RemoteProtocolError(f"{count} tagged fields; the limit is {_MAX_TAGS}")
    return count, at


def read_tag(data: bytes | memoryview, at: int) -> tuple[int, int, int]:
    """Read the head of a tagged field: its number, its end, and the start of its content."""
    number, at = read_uvarint(data, at)
    size, at = read_uvarint(data, at)
    return number, at + size, at


def check_tag_end(number: int, at: int, end: int) -> None:
    """Check that a tagged field has the announced length."""
    if at != end:
        raise RemoteProtocolError(f"tagged field {number} ends at {at}, not at {end}")


def skip_tags(data: bytes | memoryview, at: int) -> int:
    """Skip tagged fields of which none is known."""
    count, at = read_tag_count(data, at)
    for _ in range(count):
        _, at, _ = read_tag(data, at)
    return at
