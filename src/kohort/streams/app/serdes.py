"""Serdes: conversion of keys and values to bytes and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar

from kohort.streams.errors import BuildError

T = TypeVar("T")

Decoded: TypeAlias = Any
"""A value deserialized by a serde of the application."""


class Serde(Generic[T]):
    """A serializer and its deserializer; neither is called with None.

    Args:
        name: Its name, which is part of the program's digest: use one name per format.
        serialize: Returns bytes. For keys, equal values must yield equal bytes.
        deserialize: Reads the bytes; raises an error if they are invalid.
    """

    __slots__ = ("deserialize", "name", "serialize")

    def __init__(
        self, name: str, serialize: Callable[[T], bytes], deserialize: Callable[[bytes], T]
    ) -> None:
        self.name = name
        self.serialize = serialize
        self.deserialize = deserialize

    def __repr__(self) -> str:
        """Return its name."""
        return f"Serde({self.name!r})"


SerdeLike: TypeAlias = (
    "Serde[T] | tuple[Callable[[T], bytes], Callable[[bytes], T]] | type[T] | str"
)
"""A serde, a pair of functions, or one of the names (types) bytes, str, int, and "json".

Type checkers infer more from a type, `JSON` or another serde than from a name.
"""


def _bytes(value: bytes) -> bytes:
    if type(value) is not bytes:
        raise TypeError(f"expected bytes, not {type(value).__name__}")
    return value


def _from_str(value: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, not {type(value).__name__}")
    return value.encode()


def _from_int(value: int) -> bytes:
    if type(value) is not int:
        raise TypeError(f"expected an integer, not {type(value).__name__}")
    return value.to_bytes(8, "big", signed=True)


def _to_int(data: bytes) -> int:
    if len(data) != 8:
        raise ValueError(f"an integer has 8 bytes, not {len(data)}")
    return int.from_bytes(data, "big", signed=True)


# Keys are sorted so that equal keys have equal bytes. JSON has no NaN, so it is refused.
_from_json = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
).encode


def _to_json(data: bytes) -> object:
    return json.loads(data, parse_constant=_no_json)


def _no_json(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


BYTES: Serde[bytes] = Serde("bytes", _bytes, _bytes)
STR: Serde[str] = Serde("str", _from_str, bytes.decode)
INT: Serde[int] = Serde("int", _from_int, _to_int)
JSON: Serde[Any] = Serde("json", lambda value: _from_json(value).encode(), _to_json)

_NAMED: dict[object, Serde[Any]] = {
    "bytes": BYTES,
    bytes: BYTES,
    "str": STR,
    str: STR,
    "int": INT,
    int: INT,
    "json": JSON,
}


def serde_of(given: SerdeLike[T], where: str) -> Serde[T]:
    """Return the serde for an argument of the program.

    Args:
        given: The argument.
        where: The step, for error messages.

    Raises:
        BuildError: The name is unknown, or the argument is not a pair of functions.
    """
    found = _found(given)
    if found is None:
        names = ", ".join(repr(name) for name in _NAMED if isinstance(name, str))
        raise BuildError(
            f"{where}: {given!r} is not a serde: use {names}, or a pair (serialize, deserialize)"
        )
    return found


def _found(given: object) -> Serde[Any] | None:
    if isinstance(given, Serde):
        return given
    if isinstance(given, str | type):
        return _NAMED.get(given)
    if isinstance(given, tuple) and len(given) == 2 and all(callable(each) for each in given):
        names = (getattr(each, "__qualname__", type(each).__name__) for each in given)
        return Serde(f"({', '.join(names)})", *given)
    return None
