"""The declaration of messages: frozen structs whose fields are annotated with Kafka types.

An annotation consists of the type on the wire and, if some versions lack the field, the versions
that have it. One class serves all versions of a message:

    @message(api_key=12, versions=(0, 4), flexible_since=4)
    class HeartbeatRequest(Request["HeartbeatResponse"], frozen=True, kw_only=True):
        group_id: String
        generation_id: Int32
        member_id: String
        group_instance_id: Annotated[NullableString, since(3)] = None

When a version without the field is decoded, the field gets its default. When such a version is
encoded, the field must have its default, unless it is marked `IGNORABLE`: then it is silently
omitted. Kafka's schemas define which fields are ignorable.

`kohort.wire.codec.compile` turns a declaration into an encoder and a decoder
for each version, once, on first use.
"""

from __future__ import annotations

import inspect
import types
import uuid
from collections.abc import Callable, Iterable
from typing import (
    Annotated,
    ClassVar,
    Generic,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import msgspec

from kohort.values import defaults, replace

Buffer: TypeAlias = bytes | bytearray | memoryview

EVERY_VERSION = 32767
ZERO_UUID = uuid.UUID(int=0)


class Kind(msgspec.Struct, frozen=True):
    """A primitive type of Kafka's protocol, by its name in Kafka's schemas."""

    name: str


class Versions(msgspec.Struct, frozen=True):
    """The first and last versions that have a field."""

    first: int = 0
    last: int = EVERY_VERSION


class Tag(msgspec.Struct, frozen=True):
    """Marks a tagged field (KIP-482) and gives its number."""

    number: int


class Ignorable(msgspec.Struct, frozen=True):
    """Marks a field that is silently omitted when a version without it is encoded."""


IGNORABLE = Ignorable()


class NullableSince(msgspec.Struct, frozen=True):
    """Marks a field that may be null only from this version on."""

    version: int


def since(version: int) -> Versions:
    """Declare that a field exists from `version` on."""
    return Versions(first=version)


def until(version: int) -> Versions:
    """Declare that a field exists up to and including `version`."""
    return Versions(last=version)


def between(first: int, last: int) -> Versions:
    """Declare that a field exists from `first` to `last`, both included."""
    return Versions(first, last)


Bool = Annotated[bool, Kind("bool")]
Int8 = Annotated[int, Kind("int8")]
Int16 = Annotated[int, Kind("int16")]
Int32 = Annotated[int, Kind("int32")]
Int64 = Annotated[int, Kind("int64")]
UInt16 = Annotated[int, Kind("uint16")]
UInt32 = Annotated[int, Kind("uint32")]
Float64 = Annotated[float, Kind("float64")]
Uuid = Annotated[uuid.UUID, Kind("uuid")]
String = Annotated[str, Kind("string")]
NullableString = Annotated[str | None, Kind("string")]
Bytes = Annotated[bytes, Kind("bytes")]
NullableBytes = Annotated[bytes | None, Kind("bytes")]
# Record batches stay bytes here: a decoded message has a view of the frame it came from.
Records = Annotated[bytes | bytearray | memoryview | None, Kind("records")]


class Struct(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every message and of every structure inside one.

    Each class repeats `frozen=True, kw_only=True`: a base's options do not cover its fields.
    """


class Message(Struct, frozen=True, kw_only=True):
    """A top-level structure: a request, a response, a header, a log record.

    Attributes:
        api_key: Kafka's number of the API; -1 for messages that are neither requests nor responses.
        min_version: Oldest supported version.
        max_version: Newest supported version.
        flexible_since: First version with compact lengths and tagged fields (KIP-482).
    """

    api_key: ClassVar[int]
    min_version: ClassVar[int]
    max_version: ClassVar[int]
    flexible_since: ClassVar[int]

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Return whether `version` uses compact lengths and tagged fields."""
        return version >= cls.flexible_since


R = TypeVar("R", bound=Message)
M = TypeVar("M", bound=type[Message])


class Request(Message, Generic[R], frozen=True, kw_only=True):
    """A request; its type parameter is the class of its response."""


def message(
    *, versions: tuple[int, int], flexible_since: int = EVERY_VERSION, api_key: int = -1
) -> Callable[[M], M]:
    """Declare the API and the versions of a message.

    Args:
        versions: Oldest and newest version, both included.
        flexible_since: First version with compact lengths and tagged fields; none by default.
        api_key: Kafka's number of the API, for requests and responses.
    """

    def declare(cls: M) -> M:
        cls.api_key = api_key
        cls.min_version, cls.max_version = versions
        cls.flexible_since = flexible_since
        return cls

    return declare


class FieldSpec(msgspec.Struct, frozen=True):
    """A field of a structure in one version.

    Attributes:
        name: Attribute name.
        kind: Name of the primitive type; "struct" where `struct` is set.
        struct: Class of the structure, or of each element of the array.
        array: Whether it is an array of `kind`.
        nullable: Whether the field may be null in this version.
        tag: Number of the tagged field, or None.
        default: Value of the field if it is not sent.
        present: Whether this version has the field.
        ignorable: Whether versions without the field may be encoded whatever its value.
    """

    name: str
    kind: str
    struct: type[Struct] | None
    array: bool
    nullable: bool
    tag: int | None
    default: object
    present: bool
    ignorable: bool

    @property
    def element(self) -> FieldSpec:
        """Return the field of one element of an array; elements are never null."""
        return replace(self, array=False, nullable=False, tag=None)


# Resolving annotations is slow, and the fields of a message are needed in several places.
_HINTS: dict[type[Struct], dict[str, object]] = {}
_SPECS: dict[tuple[type[Struct], int], tuple[FieldSpec, ...]] = {}


def fields_of(cls: type[Struct], version: int) -> tuple[FieldSpec, ...]:
    """Return the fields of a structure in the order of the wire, absent ones included."""
    if cls not in _HINTS:
        _HINTS[cls] = inspect.get_annotations(cls, eval_str=True)
    if (cls, version) not in _SPECS:
        hints = _HINTS[cls]
        specs = (
            _field_spec(name, default, hints[name], version)
            for name, default in defaults(cls).items()
        )
        _SPECS[cls, version] = tuple(specs)
    return _SPECS[cls, version]


def _field_spec(field: str, default: object, hint: object, version: int) -> FieldSpec:
    core, array, nullable, marks = _taken_apart(hint)
    versions = _mark(marks, Versions) or Versions()
    null_since = _mark(marks, NullableSince) or NullableSince(0)
    tag = _mark(marks, Tag)
    kind = _mark(marks, Kind)
    inner = core if isinstance(core, type) and issubclass(core, Struct) else None
    if kind is None and inner is None:
        raise TypeError(f"field {field} of type {hint!r} has no Kafka type")
    name = kind.name if kind else "struct"
    implied = () if array else None if nullable else _IMPLIED_DEFAULTS.get(name, 0)
    return FieldSpec(
        name=field,
        kind=name,
        struct=inner,
        array=array,
        nullable=nullable and version >= null_since.version,
        tag=tag.number if tag else None,
        default=implied if default is msgspec.NODEFAULT else default,
        present=versions.first <= version <= versions.last,
        ignorable=_mark(marks, Ignorable) is not None,
    )


_IMPLIED_DEFAULTS: dict[str, object] = {
    "bool": False,
    "bytes": b"",
    "string": "",
    "struct": None,
    "uuid": ZERO_UUID,
}


def _taken_apart(hint: object) -> tuple[object, bool, bool, tuple[object, ...]]:
    """Return the innermost type, whether it is in an array, whether nullable, and all marks."""
    core, marks = _peel(hint)
    core, nullable = _without_none(core)
    core, more = _peel(core)
    marks = (*more, *marks)
    if get_origin(core) is not tuple:
        return core, False, nullable, marks
    core, more = _peel(get_args(core)[0])
    return core, True, nullable, (*more, *marks)


def _peel(hint: object) -> tuple[object, tuple[object, ...]]:
    """Split `Annotated[X, marks...]` into X and its marks."""
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        return inner, tuple(marks)
    return hint, ()


def _without_none(hint: object) -> tuple[object, bool]:
    """Split `X | None` into X and whether None was present."""
    if get_origin(hint) in (Union, types.UnionType):
        kept = [arg for arg in get_args(hint) if arg is not type(None)]
        return kept[0], len(kept) < len(get_args(hint))
    return hint, False


T = TypeVar("T")


def _mark(marks: Iterable[object], wanted: type[T]) -> T | None:
    return next((mark for mark in marks if isinstance(mark, wanted)), None)
