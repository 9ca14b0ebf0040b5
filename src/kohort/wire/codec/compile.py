"""Compile a declared message, for one version, into an encoder and a decoder.

Each becomes one flat Python function, generated as source code on first use. The code is what one
would write by hand for that version: adjacent integers share one `struct` call, and no declaration
is inspected while a message is encoded or decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, cast

from kohort.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from kohort.wire.codec.decoder_source import DecoderSource
from kohort.wire.codec.encoder_source import EncoderSource
from kohort.wire.codec.schema import Message, Struct, fields_of

Encoder: TypeAlias = Callable[[Message, bytearray], None]
Decoder: TypeAlias = Callable[[bytes | memoryview, int], tuple[Message, int]]

_ENCODERS: dict[tuple[type[Message], int], Encoder] = {}
_DECODERS: dict[tuple[type[Message], int], tuple[Decoder, bool]] = {}


def encoder(cls: type[Message], version: int) -> Encoder:
    """Return the function that appends a `cls` of this version to a bytearray.

    Raises:
        LocalProtocolError: The version does not exist.
    """
    found = _ENCODERS.get((cls, version))
    if found is None:
        _check_version(cls, version, LocalProtocolError)
        source = EncoderSource(cls, version, cls.is_flexible(version))
        found = _ENCODERS[cls, version] = cast("Encoder", source.function("encode"))
    return found


def decoder(cls: type[Message], version: int) -> tuple[Decoder, bool]:
    """Return the function that reads a `cls` of this version: (data, position) -> (value, end).

    The end may be beyond the data, if the message is truncated. For malformed bytes, the function
    raises `RemoteProtocolError`, or the errors of `struct`, of an index and of UTF-8.

    Returns:
        The function, and whether it takes a memoryview rather than bytes.

    Raises:
        RemoteProtocolError: The version does not exist.
    """
    found = _DECODERS.get((cls, version))
    if found is None:
        _check_version(cls, version, RemoteProtocolError)
        # Decoding a header must not copy the message after it.
        views = cls.api_key < 0 or _holds_records(cls, version)
        source = DecoderSource(cls, version, cls.is_flexible(version), views)
        found = cast("Decoder", source.function("decode")), views
        _DECODERS[cls, version] = found
    return found


def _check_version(cls: type[Message], version: int, error: type[ProtocolError]) -> None:
    first, last = cls.min_version, cls.max_version
    if not first <= version <= last:
        raise error(f"{cls.__name__} has versions {first} to {last}, not {version}")


def _holds_records(cls: type[Struct], version: int) -> bool:
    return any(
        spec.kind == "records" or (spec.struct is not None and _holds_records(spec.struct, version))
        for spec in fields_of(cls, version)
    )
