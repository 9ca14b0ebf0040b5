"""A second encoder, as plain as can be, that can put unknown tagged fields into every structure."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from typing import Any

from kohort.wire.codec.schema import FieldSpec, Message, Struct, fields_of

CODES = {"bool": "?", "float64": "d", "int8": "b", "int16": "h", "int32": "i", "int64": "q"}

Tags = Mapping[int, bytes]


def reference_bytes(value: Message, version: int, unknown: Tags | None = None) -> bytes:
    """The bytes of a message; the tagged fields `unknown` are in each of its structures."""
    return _struct(value, version, value.is_flexible(version), unknown or {})


def uvarint(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 127:
        out.append(value % 128 + 128)
        value //= 128
    return bytes(out) + bytes([value])


def _struct(value: Struct, version: int, flexible: bool, unknown: Tags) -> bytes:
    specs = [spec for spec in fields_of(type(value), version) if spec.present]
    plain = [
        _field(getattr(value, spec.name), spec, version, flexible, unknown)
        for spec in specs
        if spec.tag is None
    ]
    tags = dict(unknown)
    for spec in specs:
        content = getattr(value, spec.name)
        if spec.tag is not None and content != spec.default:
            tags[spec.tag] = _field(content, spec, version, flexible, unknown)
    return b"".join(plain) + (_tags(tags) if flexible else b"")


def _tags(tags: Tags) -> bytes:
    parts = [uvarint(tag) + uvarint(len(tags[tag])) + tags[tag] for tag in sorted(tags)]
    return uvarint(len(parts)) + b"".join(parts)


def _field(value: Any, spec: FieldSpec, version: int, flexible: bool, unknown: Tags) -> bytes:
    if spec.array:
        if value is None:
            return b"\0" if flexible else struct.pack(">i", -1)
        count = uvarint(len(value) + 1) if flexible else struct.pack(">i", len(value))
        one = spec.element
        return count + b"".join(_field(item, one, version, flexible, unknown) for item in value)
    if spec.struct is not None:
        if spec.nullable and value is None:
            return b"\xff"
        head = b"\x01" if spec.nullable else b""
        return head + _struct(value, version, flexible, unknown)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if spec.kind in CODES:
        return struct.pack(">" + CODES[spec.kind], value)
    return _sized(value, spec.kind, flexible)


def _sized(value: Any, kind: str, flexible: bool) -> bytes:
    code = ">h" if kind == "string" else ">i"
    if value is None:
        return b"\0" if flexible else struct.pack(code, -1)
    content = value.encode() if kind == "string" else bytes(value)
    size = uvarint(len(content) + 1) if flexible else struct.pack(code, len(content))
    return size + content
