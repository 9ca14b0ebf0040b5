"""Encodes and decodes messages.

`encode` and `decode` take any declared message in any of its versions. Whatever the bytes are,
`decode` returns a value or raises `RemoteProtocolError`.
"""

from __future__ import annotations

import struct
from typing import TypeVar, cast

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.wire.codec import compile as compiled
from kohort.wire.codec import primitives
from kohort.wire.codec.schema import Buffer, Message

M = TypeVar("M", bound=Message)

_VERSION = struct.Struct(">h")


def encode(message: Message, version: int) -> bytearray:
    """Return the bytes of a message, without a header.

    Raises:
        LocalProtocolError: The message does not have this version, or a value does not fit its
            field.
    """
    out = bytearray()
    encode_into(out, message, version)
    return out


def encode_into(out: bytearray, message: Message, version: int) -> None:
    """Append the bytes of a message to `out`; an error may leave a part there; see `encode`."""
    write = compiled.encoder(type(message), version)
    try:
        write(message, out)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        name = type(message).__name__
        raise LocalProtocolError(f"cannot encode {name} v{version}: {error}") from error


def decode(cls: type[M], version: int, data: Buffer) -> M:
    """Read a message that fills `data` exactly.

    Raises:
        RemoteProtocolError: The bytes are not such a message, or the version is unknown.
    """
    return decode_rest(cls, version, data, 0)


def decode_rest(cls: type[M], version: int, data: Buffer, at: int) -> M:
    """Read a message that fills `data` from `at` to its end; see `decode`."""
    value, end = decode_from(cls, version, data, at)
    if end != len(data):
        raise RemoteProtocolError(f"{cls.__name__} v{version}: {len(data) - end} bytes left over")
    return value


def decode_from(cls: type[M], version: int, data: Buffer, at: int) -> tuple[M, int]:
    """Read a message that starts at `at`; return it and the position after it."""
    read, views = compiled.decoder(cls, version)
    try:
        value, end = read(memoryview(data) if views else bytes(data), at)
    except (struct.error, IndexError):
        raise RemoteProtocolError(f"{cls.__name__} v{version} ends too early") from None
    except UnicodeDecodeError as error:
        reason = f"a string that is not UTF-8: {error.reason}"
        raise RemoteProtocolError(f"{cls.__name__} v{version} has {reason}") from None
    if end > len(data):
        raise RemoteProtocolError(f"{cls.__name__} v{version} ends too early")
    return cast("M", value), end


def encode_versioned(message: Message, version: int) -> bytes:
    """Return an int16 version and the message, the form of structures inside other bytes."""
    out = bytearray(_VERSION.pack(version))
    encode_into(out, message, version)
    return bytes(out)


def read_version(data: memoryview) -> tuple[int, int]:
    """Return the int16 version at the start of `data`, and the position after it."""
    if len(data) < _VERSION.size:
        raise RemoteProtocolError(f"{len(data)} bytes are too few for a version")
    version: int = _VERSION.unpack_from(data)[0]
    return version, _VERSION.size


def skip_tags(data: memoryview, at: int) -> int:
    """Skip the tagged fields at `at`; return the position after them."""
    try:
        end = primitives.skip_tags(data, at)
    except IndexError:
        end = len(data) + 1
    if end > len(data):
        raise RemoteProtocolError("tagged fields end too early")
    return end
