"""Random values of declared messages, as Hypothesis strategies."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kohort.wire.codec.schema import FieldSpec, Message, Struct, fields_of
from tests.wire.kio_adapter import is_private, kio_class, kio_type, nested_class, pairs

INTEGERS = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
}

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    **INTEGERS,
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "uuid": st.uuids(allow_nil=True),
    "string": st.text(max_size=40) | st.sampled_from(["", "é" * 64, "t" * 127, "t" * 128]),
    "bytes": st.binary(max_size=40) | st.sampled_from([b"", b"x" * 126, b"x" * 127]),
    "records": st.binary(max_size=40) | st.just(b"x" * 20000),
}

# kio has types for these that hold less than the wire does.
NARROWER: dict[str, st.SearchStrategy[Any]] = {
    "error_code": st.sampled_from([code.value for code in ErrorCode]),
    "timedelta_i64": st.integers(-(2**50), 2**50),
    "datetime_i64": st.integers(-1, 4_102_444_800_000),
}


def messages(cls: type[Message], version: int) -> st.SearchStrategy[Any]:
    """Values of a message that a version can carry, and kio too."""
    return _structs(cls, version, kio_class(cls, version))


def any_messages(cls: type[Message], version: int) -> st.SearchStrategy[Any]:
    """Values of a message that a version can carry, whether kio can or not."""
    return _structs(cls, version, None)


def _structs(cls: type[Struct], version: int, theirs: type[Any] | None) -> st.SearchStrategy[Any]:
    kio_fields: dict[str, Any] = {}
    if theirs is not None:
        kio_fields = {spec.name: field for spec, field in pairs(cls, version, theirs)}
    known = theirs is None
    present = (s for s in fields_of(cls, version) if s.present and (known or not is_private(s)))
    return st.builds(
        cls, **{spec.name: _values(spec, version, kio_fields.get(spec.name)) for spec in present}
    )


def _values(spec: FieldSpec, version: int, field: Any) -> st.SearchStrategy[Any]:
    if spec.struct is not None:
        values = _structs(spec.struct, version, nested_class(field) if field else None)
    else:
        values = PRIMITIVES[spec.kind]
        if field is not None:
            values = NARROWER.get(kio_type(field), values)
            if kio_type(field) == "datetime_i64" and "None" not in str(field.type):
                values = values.filter(lambda at: at >= 0)  # kio has no time for what never was
    if spec.array:
        values = st.lists(values, max_size=3).map(tuple)
    if spec.tag is not None:
        values = st.just(spec.default) | values
    return st.none() | values if spec.nullable else values
