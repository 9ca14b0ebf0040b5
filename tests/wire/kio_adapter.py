"""Our messages as kio's and back: kio has a class per version and its own types for some fields.

Fields are paired by their place, which is the place on the wire. kio calls milliseconds timedelta
or datetime, has an enum for error codes and None for the zero UUID.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import typing
import uuid
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records

from kohort.values import replace
from kohort.wire import apis
from kohort.wire.codec.schema import ZERO_UUID, FieldSpec, Message, Struct, fields_of
from kohort.wire.messages.consumer_group import PRIVATE_TAGS
from kohort.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kohort.wire.messages.headers import RequestHeader, ResponseHeader
from tests.tiers import is_first_tier

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)

Case = tuple[type[Message], int]

MODULES: dict[type[Message], str] = {
    RequestHeader: "request_header.v{}.header",
    ResponseHeader: "response_header.v{}.header",
    ConsumerProtocolSubscription: "consumer_protocol_subscription.v{}.data",
    ConsumerProtocolAssignment: "consumer_protocol_assignment.v{}.data",
}

PAIRED: tuple[type[Message], ...] = tuple(cls for pair in apis.pairs() for cls in pair)

CASES: list[Case] = [
    (cls, version)
    for cls in (*PAIRED, *MODULES)
    for version in range(cls.min_version, cls.max_version + 1)
]


def layout(cls: type[Struct], version: int) -> tuple[object, ...]:
    """All that decides how a structure is written in a version."""
    return tuple(
        (replace(spec, struct=None), spec.struct and layout(spec.struct, version))
        for spec in fields_of(cls, version)
    )


def distinct(cases: list[Case]) -> list[Case]:
    """The cases without those whose bytes look as in an earlier version of the same message."""
    found: dict[object, Case] = {}
    for cls, version in cases:
        found.setdefault((cls, cls.is_flexible(version), layout(cls, version)), (cls, version))
    return list(found.values())


# What is tried with drawn values: in the first tier one version of each layout, and in the second
# every version. That our fields are Kafka's is compared in every version, in both tiers.
DRAWN: list[Case] = distinct(CASES) if is_first_tier() else CASES


def case_name(value: object) -> str:
    """How a case is called in the list of tests."""
    return value.__name__ if isinstance(value, type) else f"v{value}"


def kio_class(cls: type[Message], version: int) -> type[Any]:
    """kio's class of our message in one version."""
    if cls in MODULES:
        module = importlib.import_module("kio.schema." + MODULES[cls].format(version))
        found: type[Any] = getattr(module, cls.__name__)
        return found
    load = load_request_schema if cls.__name__.endswith("Request") else load_response_schema
    return load(cls.api_key, version)


def kio_bytes(value: Any) -> bytes:
    """What kio writes."""
    out = io.BytesIO()
    entity_writer(type(value))(out, value)
    return out.getvalue()


def kio_value(cls: type[Any], data: bytes) -> Any:
    """What kio reads; it must read all of it."""
    value, size = entity_reader(cls)(data, 0)
    assert size == len(data)
    return value


def pairs(
    cls: type[Struct], version: int, theirs: type[Any]
) -> list[tuple[FieldSpec, dataclasses.Field[Any]]]:
    """Our fields beside kio's, without those that Kafka does not have (K60)."""
    ours = [spec for spec in fields_of(cls, version) if spec.present and not is_private(spec)]
    return list(zip(ours, dataclasses.fields(theirs), strict=True))


def is_private(spec: FieldSpec) -> bool:
    """Whether a field is one that only we know."""
    return spec.tag is not None and spec.tag > PRIVATE_TAGS


def kio_type(field: dataclasses.Field[Any]) -> str:
    """kio's name of a field's type."""
    name: str = field.metadata.get("kafka_type", "struct")
    return name


def nested_class(field: dataclasses.Field[Any]) -> type[Any]:
    """kio's class of the structures in a field."""
    classes = (part for part in _parts(field.type) if isinstance(part, type))
    return next(part for part in classes if dataclasses.is_dataclass(part))


def _parts(hint: Any) -> list[Any]:
    inner = [part for arg in typing.get_args(hint) for part in _parts(arg)]
    return [hint, *inner]


def to_kio(value: Struct, version: int, theirs: type[Any]) -> Any:
    """Our value as kio's."""
    return theirs(
        **{
            field.name: _mapped(_field_to_kio, getattr(value, spec.name), spec, field, version)
            for spec, field in pairs(type(value), version, theirs)
        }
    )


def from_kio(value: Any, version: int, cls: type[Any]) -> Any:
    """kio's value as ours."""
    return cls(
        **{
            spec.name: _mapped(field_from_kio, getattr(value, field.name), spec, field, version)
            for spec, field in pairs(cls, version, type(value))
        }
    )


def _mapped(
    convert: Any, value: Any, spec: FieldSpec, field: dataclasses.Field[Any], version: int
) -> Any:
    if spec.array:
        return None if value is None else tuple(convert(v, spec, field, version) for v in value)
    return convert(value, spec, field, version)


def _field_to_kio(value: Any, spec: FieldSpec, field: dataclasses.Field[Any], version: int) -> Any:
    match kio_type(field):
        case "struct" if value is not None:
            return to_kio(value, version, nested_class(field))
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return value * MILLISECOND
        case "datetime_i64":
            return None if value == -1 else EPOCH + value * MILLISECOND
        case "uuid":
            return None if value == ZERO_UUID else value
        case "records":
            return None if value is None else Records(bytes(value))
        case _:
            return value


def field_from_kio(value: Any, spec: FieldSpec, field: dataclasses.Field[Any], version: int) -> Any:
    match kio_type(field):
        case "struct" if value is not None and spec.struct is not None:
            return from_kio(value, version, spec.struct)
        case "error_code":
            return value.value
        case "timedelta_i32" | "timedelta_i64":
            return round(value / MILLISECOND)
        case "datetime_i64":
            return -1 if value is None else round((value - EPOCH) / MILLISECOND)
        case "uuid":
            return uuid.UUID(int=0) if value is None else value
        case _:
            return value
