"""Every message in every version: what we write kio reads, and the other way round."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.static.primitive import Records

from kohort.wire.codec import coding
from kohort.wire.codec.schema import FieldSpec, Message
from tests.tiers import examples
from tests.wire.kio_adapter import (
    CASES,
    DRAWN,
    case_name,
    field_from_kio,
    from_kio,
    kio_bytes,
    kio_class,
    kio_type,
    kio_value,
    nested_class,
    pairs,
    to_kio,
)
from tests.wire.values import messages

st.register_type_strategy(Records, st.binary(max_size=40).map(Records))

# A case is one message in one version; structures nest, so that building a value takes a while.
few = examples(2, 6)
each_case = pytest.mark.parametrize(("cls", "version"), CASES, ids=case_name)
each_drawn = pytest.mark.parametrize(("cls", "version"), DRAWN, ids=case_name)


@each_drawn
@few
@given(data=st.data())
def test_kio_reads_what_we_write(cls: type[Message], version: int, data: st.DataObject) -> None:
    value = data.draw(messages(cls, version))
    ours = bytes(coding.encode(value, version))
    theirs = kio_value(kio_class(cls, version), ours)
    assert theirs == to_kio(value, version, type(theirs))
    assert kio_bytes(theirs) == ours
    assert coding.decode(cls, version, ours) == value


@each_drawn
@few
@given(data=st.data())
def test_we_read_what_kio_writes(cls: type[Message], version: int, data: st.DataObject) -> None:
    theirs = data.draw(st.from_type(kio_class(cls, version)))
    value = coding.decode(cls, version, kio_bytes(theirs))
    assert value == from_kio(theirs, version, cls)
    assert coding.encode(value, version) == kio_bytes(theirs)


@each_case
def test_fields_have_kafkas_names_order_tags_and_nulls(cls: type[Message], version: int) -> None:
    assert differences(cls, version, kio_class(cls, version)) == []


def differences(cls: type[Any], version: int, theirs: type[Any]) -> list[str]:
    found = []
    for spec, field in pairs(cls, version, theirs):
        # kio says None for the zero UUID and for the timestamp -1
        has_null = "None" in str(field.type) and kio_type(field) not in ("uuid", "datetime_i64")
        facts = {
            "name": field.name in (spec.name, spec.name.removesuffix("_ms")),
            "tag": field.metadata.get("tag") == spec.tag,
            "nullable": has_null == spec.nullable,
            "default": has_same_default(spec, field, version),
        }
        found += [f"{cls.__name__}.{spec.name}: {fact}" for fact, same in facts.items() if not same]
        if spec.struct is not None:
            found += differences(spec.struct, version, nested_class(field))
    return found


def has_same_default(spec: FieldSpec, field: dataclasses.Field[Any], version: int) -> bool:
    if field.default is dataclasses.MISSING or spec.array:
        return True
    return bool(field_from_kio(field.default, spec, field, version) == spec.default)
