"""Parse records from standard input or files: parts between delimiters, or lines of JSON."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from typing import Final, cast

from msgspec import Struct

from kohort.errors import ConfigError

_CHUNK: Final = 64 * 1024
# The longest value in Kafka's protocol.
_LONGEST: Final = 2**31 - 1
# Fields that `kohort consume --json` adds to the ones that can be sent.
_IGNORED: Final = frozenset({"topic", "offset"})


class InputRecord(Struct, frozen=True):
    """A record to send.

    Attributes:
        value: Its value.
        key: Its key.
        headers: Names and values.
        partition: Its partition; None: by its key.
        timestamp_ms: Milliseconds since the epoch; None: now.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def split(read: Callable[[int], bytes], delimiter: bytes) -> Iterator[bytes]:
    """Yield the parts between delimiters; the last part may lack one.

    Args:
        read: Returns more bytes, up to the given number; none at the end.
        delimiter: At least one byte.

    Raises:
        ConfigError: A part is longer than a record can be.
    """
    left = bytearray()
    while chunk := read(_CHUNK):
        # A delimiter may begin in the earlier bytes.
        searched = max(len(left) - len(delimiter) + 1, 0)
        left += chunk
        if left.find(delimiter, searched) >= 0:
            *parts, left = left.split(delimiter)
            yield from map(bytes, parts)
        elif len(left) > _LONGEST:
            raise ConfigError(f"there is no delimiter within {_LONGEST} bytes")
    if left:
        yield bytes(left)


def from_line(line: bytes, key_delimiter: bytes | None, *, empty_is_null: bool) -> InputRecord:
    """Return the record of one part; without a key delimiter the whole part is the value."""
    key: bytes | None = None
    value: bytes | None = line
    if key_delimiter is not None:
        first, found, rest = line.partition(key_delimiter)
        if found:
            key, value = first, rest
    return InputRecord((value or None) if empty_is_null else value, key)


def from_json(line: bytes) -> InputRecord:
    """Return the record of a line of JSON, as `kohort consume --json` prints it.

    Raises:
        ValueError: The line is not such a record; says why.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    fields = cast("dict[str, object]", found)
    headers = fields.pop("headers", None) or []
    if not isinstance(headers, list):
        raise ValueError('"headers" must be a list of {"name": ..., "value": ...}')
    given = InputRecord(
        value=_bytes(fields, "value"),
        key=_bytes(fields, "key"),
        headers=tuple(_header(each) for each in headers),
        partition=_number(fields, "partition"),
        timestamp_ms=_number(fields, "timestamp"),
    )
    _refuse(fields.keys() - _IGNORED)
    return given


def _header(given: object) -> tuple[str, bytes | None]:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise ValueError('each of "headers" must be {"name": "...", "value": "..."}')
    fields = cast("dict[str, object]", given)
    name = cast("str", fields.pop("name"))
    value = _bytes(fields, "value")
    _refuse(fields.keys())
    return name, value


def _bytes(fields: dict[str, object], name: str) -> bytes | None:
    """Return a text, or bytes in base64, from an object."""
    encoded = fields.pop(f"{name}_base64", None)
    text = fields.pop(name, None)
    if encoded is None:
        if text is not None and not isinstance(text, str):
            raise ValueError(f'"{name}" must be a string or null')
        return None if text is None else text.encode()
    if text is not None:
        raise ValueError(f'there is "{name}" and "{name}_base64"')
    try:
        return base64.b64decode(encoded, validate=True)  # type: ignore[arg-type]  # or TypeError
    except (TypeError, binascii.Error, ValueError):
        raise ValueError(f'"{name}_base64" is no base64') from None


def _number(fields: dict[str, object], name: str) -> int | None:
    value = fields.pop(name, None)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ValueError(f'"{name}" must be a whole number')
    return value


def _refuse(names: object) -> None:
    unknown = sorted(cast("set[str]", names))
    if unknown:
        raise ValueError(f'unknown field "{unknown[0]}"')
