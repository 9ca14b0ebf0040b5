"""Format records for standard output: with a format as in kcat, or as JSON."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from kohort.client import ConsumerRecord

Render: TypeAlias = "Callable[[ConsumerRecord], bytes]"

_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_SIMPLE: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN: Final = re.compile(rb"%(.?)", re.DOTALL)
_LENGTH: Final = struct.Struct(">i")


def unescaped(text: str) -> bytes:
    r"""Return the bytes of a text with the escapes \n, \t, \r, \0, \\ and \xHH.

    Raises:
        ValueError: It has another escape.
    """
    found = b""
    at = 0
    for escape in _ESCAPE.finditer(text):
        name = escape[1]
        if name not in _SIMPLE and len(name) != 3:
            raise ValueError(f"{escape[0]!r} in {text!r} is none of \\n \\t \\r \\0 \\\\ \\xHH")
        found += _encoded(text[at : escape.start()])
        found += _SIMPLE.get(name) or bytes.fromhex(name[1:])
        at = escape.end()
    return found + _encoded(text[at:])


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")  # the bytes from the shell, unchanged


def _headers(record: ConsumerRecord) -> bytes:
    pairs = (_encoded(name) + b"=" + _or(value, b"NULL") for name, value in record.headers)
    return b",".join(pairs)


def _or(value: bytes | None, null: bytes) -> bytes:
    return null if value is None else value


def _length(value: bytes | None) -> int:
    return -1 if value is None else len(value)


def _fields(null: bytes) -> dict[bytes, Render]:
    return {
        b"t": lambda record: record.topic.encode(),
        b"p": lambda record: b"%d" % record.partition,
        b"o": lambda record: b"%d" % record.offset,
        b"k": lambda record: _or(record.key, null),
        b"s": lambda record: _or(record.value, null),
        b"K": lambda record: b"%d" % _length(record.key),
        b"S": lambda record: b"%d" % _length(record.value),
        b"R": lambda record: _LENGTH.pack(_length(record.value)),
        b"T": lambda record: b"%d" % record.timestamp,
        b"h": _headers,
        b"%": lambda _: b"%",
    }


def by_format(text: str, null: bytes = b"") -> Render:
    """Return a function that renders a record by a format.

    Args:
        text: With %t topic, %p partition, %o offset, %k key, %s value, %h headers, %T timestamp in
            ms, %K and %S lengths of key and value (-1 for null), %R that of the value in 4 bytes,
            %%, and the escapes of `unescaped`. No line end is added.
        null: The text for a null key or value.

    Raises:
        ValueError: It has another escape or another letter after a %.
    """
    known = _fields(null)
    given = unescaped(text)
    parts: list[bytes | Render] = []
    at = 0
    for token in _TOKEN.finditer(given):
        if token[1] not in known:
            letters = " ".join(f"%{name.decode()}" for name in known)
            raise ValueError(f"{token[0].decode(errors='replace')!r} is none of {letters}")
        parts += [given[at : token.start()], known[token[1]]]
        at = token.end()
    parts.append(given[at:])
    return _joined(parts)


def _joined(parts: Sequence[bytes | Render]) -> Render:
    return lambda record: b"".join(
        part if isinstance(part, bytes) else part(record) for part in parts
    )


def plain(delimiter: bytes, key_delimiter: bytes | None, null: bytes = b"") -> Render:
    """Return a function that renders a record as its value, optionally after its key."""
    if key_delimiter is None:
        return lambda record: _or(record.value, null) + delimiter
    return lambda record: (
        _or(record.key, null) + key_delimiter + _or(record.value, null) + delimiter
    )


def as_json(record: ConsumerRecord) -> bytes:
    """Return a record as a line of JSON; bytes that are not UTF-8 become base64, marked as such."""
    found = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": [{"name": name, **_text("value", value)} for name, value in record.headers],
    }
    return json.dumps(found, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _text(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
