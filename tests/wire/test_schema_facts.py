"""What Kafka's own schemas say of a field, as kafka-python carries them, is what ours say."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.wire.codec.schema import Message, Struct, fields_of
from tests.wire.kio_adapter import PAIRED, case_name


def schema_folder() -> Path:
    spec = importlib.util.find_spec("kafka")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "protocol" / "schemas" / "resources"


# kafka-python does not speak the protocol of KIP-848; kio knows these messages' versions.
WITHOUT_SCHEMA = {
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
}
WITH_SCHEMA = [cls for cls in PAIRED if cls.__name__ not in WITHOUT_SCHEMA]


def kafkas_schema(name: str) -> dict[str, Any]:
    text = (schema_folder() / f"{name}.json").read_text()
    schema: dict[str, Any] = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    schema["structs"] = {each["name"]: each["fields"] for each in schema.get("commonStructs", [])}
    return schema


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def fields_lacking_in_some_version(
    cls: type[Struct], json_fields: list[dict[str, Any]], common: dict[str, Any], versions: range
) -> Iterator[tuple[str, bool, bool]]:
    """Name of each such field, whether ours is ignorable, whether Kafka's is."""
    by_name = {snake_case(field["name"]): field for field in json_fields}
    structs = {}
    for version in versions:
        for spec in fields_of(cls, version):
            if not spec.present:
                theirs = str(by_name[spec.name].get("ignorable", False)).lower() == "true"
                yield f"{cls.__name__}.{spec.name}", spec.ignorable, theirs
            if spec.struct is not None:
                structs[spec.name] = spec.struct
    for name, inner in structs.items():
        field = by_name[name]
        inner_fields = field.get("fields") or common[field["type"].removeprefix("[]")]
        yield from fields_lacking_in_some_version(inner, inner_fields, common, versions)


@pytest.mark.parametrize("cls", WITH_SCHEMA, ids=case_name)
def test_ignorable_fields_are_kafkas(cls: type[Message]) -> None:
    schema = kafkas_schema(cls.__name__)
    versions = range(cls.min_version, cls.max_version + 1)
    found = set(fields_lacking_in_some_version(cls, schema["fields"], schema["structs"], versions))
    assert {name for name, ours, theirs in found if ours != theirs} == set()


@pytest.mark.parametrize("cls", WITH_SCHEMA, ids=case_name)
def test_versions_and_flexible_versions_are_kafkas(cls: type[Message]) -> None:
    schema = kafkas_schema(cls.__name__)
    first, _, last = schema["validVersions"].partition("-")
    assert (cls.min_version, cls.max_version) == (int(first), int(last or first))
    flexible = schema["flexibleVersions"].removesuffix("+")
    expected = cls.max_version + 1 if flexible == "none" else int(flexible)
    assert min(cls.flexible_since, cls.max_version + 1) == min(expected, cls.max_version + 1)
    assert cls.api_key == schema["apiKey"]


@pytest.mark.parametrize("name", sorted(WITHOUT_SCHEMA))
def test_what_is_left_out_cannot_be_compared(name: str) -> None:
    assert not (schema_folder() / f"{name}.json").exists()
