"""Messages as readable tables: data file -> request, answer -> data file.

Short forms, in both directions: a list of structures that have a natural key is a table from key to
value (`SHORT`); bytes are text, or a table where they are a subscription or an assignment of the
consumer protocol; null is `${null}`; error codes are names. A field that has its default is left
out, but an error code is always said.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from kio.schema.errors import ErrorCode

from kohort.errors import RemoteProtocolError
from kohort.values import replace
from kohort.wire import consumer_protocol
from kohort.wire.codec.schema import FieldSpec, Message, Struct, fields_of
from kohort.wire.messages import consumer_group, consumer_group_records, membership, offsets
from kohort.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartitions,
)
from tests.coordinator_dialogues import normal
from tests.coordinator_dialogues.names import NULL, Names
from tests.coordinator_dialogues.toml import Value, render

S = TypeVar("S", bound=Struct)

SHORT: dict[type[Struct], tuple[str, str]] = {
    membership.JoinGroupRequestProtocol: ("name", "metadata"),
    membership.JoinGroupResponseMember: ("member_id", "metadata"),
    membership.SyncGroupRequestAssignment: ("member_id", "assignment"),
    offsets.OffsetCommitRequestTopic: ("name", "partitions"),
    offsets.OffsetCommitRequestPartition: ("partition_index", "committed_offset"),
    offsets.OffsetCommitResponseTopic: ("name", "partitions"),
    offsets.OffsetCommitResponsePartition: ("partition_index", "error_code"),
    offsets.OffsetFetchRequestTopic: ("name", "partition_indexes"),
    offsets.OffsetFetchRequestTopics: ("name", "partition_indexes"),
    offsets.OffsetFetchResponseTopic: ("name", "partitions"),
    offsets.OffsetFetchResponseTopics: ("name", "partitions"),
    offsets.OffsetDeleteRequestTopic: ("name", "partitions"),
    offsets.OffsetDeleteResponseTopic: ("name", "partitions"),
    offsets.OffsetDeleteResponsePartition: ("partition_index", "error_code"),
    ConsumerProtocolTopicPartitions: ("topic", "partitions"),
    consumer_group.TopicPartitions: ("topic_id", "partitions"),
    consumer_group_records.TargetTopicPartitions: ("topic_id", "partitions"),
}
# A structure of one field is that field.
SINGLE: dict[type[Struct], str] = {
    offsets.OffsetDeleteRequestPartition: "partition_index",
    consumer_group.Assignment: "topic_partitions",
    consumer_group.DescribedAssignment: "topic_partitions",
}
# What bytes of members may be; only what is written back as the same bytes is shown as it.
_PROTOCOL: tuple[tuple[Callable[[bytes], Message], Callable[[Any, int], bytes]], ...] = (
    (consumer_protocol.decode_assignment, consumer_protocol.encode_assignment),
    (consumer_protocol.decode_subscription, consumer_protocol.encode_subscription),
)
# Newest version of the consumer protocol that is written where a table does not say another.
PROTOCOL_VERSION = 3


class Writer:
    """Makes requests of one client out of tables."""

    def __init__(self, names: Names, client: str) -> None:
        self._names = names
        self._client = client

    def message(self, cls: type[S], version: int, table: Mapping[str, object]) -> S:
        """Return a structure; fields that the version does not have are left out."""
        specs = {spec.name: spec for spec in fields_of(cls, version)}
        unknown = set(table) - set(specs)
        if unknown:
            raise KeyError(f"{cls.__name__} has no field {sorted(unknown)}")
        values = {name: spec.default for name, spec in specs.items()}
        for name, value in table.items():
            if specs[name].present:
                values[name] = self._field(specs[name], value, version)
        return cls(**values)

    def _field(self, spec: FieldSpec, value: object, version: int) -> object:
        if value == NULL:
            return None
        if not spec.array:
            return self._element(spec, value, version)
        if isinstance(value, Mapping) and spec.struct is not None:
            key, rest = SHORT[spec.struct]
            value = [{key: one, rest: other} for one, other in value.items()]
        return tuple(
            self._element(spec.element, each, version) for each in cast("list[object]", value)
        )

    def _element(self, spec: FieldSpec, value: object, version: int) -> object:
        if spec.struct is not None:
            if not isinstance(value, Mapping) or spec.struct is consumer_group.Assignment:
                value = {SINGLE[spec.struct]: value}
            return self.message(spec.struct, version, value)
        if spec.kind == "bytes":
            return self._bytes(value)
        if isinstance(value, str):
            value = self._names.resolve(value, self._client)
            return int(value) if spec.kind.startswith("int") and isinstance(value, str) else value
        return value

    def _bytes(self, value: object) -> bytes:
        if isinstance(value, Mapping):
            table = dict(value)
            version = table.pop("version", PROTOCOL_VERSION)
            if "topics" in table:
                subscription = self.message(ConsumerProtocolSubscription, version, table)
                return consumer_protocol.encode_subscription(subscription, version)
            assignment = self.message(ConsumerProtocolAssignment, version, table)
            return consumer_protocol.encode_assignment(assignment, version)
        text = str(value)
        return bytes.fromhex(text[4:]) if text.startswith("hex:") else text.encode()


class Shower:
    """Makes tables out of answers, with everything normalised that Kafka leaves free."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def table(self, value: Struct, version: int) -> dict[str, Value]:
        """Return a structure as a table."""
        shown: dict[str, Value] = {}
        for spec in fields_of(type(value), version):
            content = getattr(value, spec.name)
            if not spec.present or spec.name in normal.DROPPED:
                continue
            if spec.name in normal.WORDING and not getattr(value, "error_code", 0):
                continue
            if spec.name == "error_code":
                shown[spec.name] = error_name(content)
            elif content != spec.default:
                shown[spec.name] = self._field(type(value), spec, content, version)
            if (type(value), spec.name) in normal.OTHERS and not shown.get(spec.name):
                shown.pop(spec.name, None)
        return shown

    def _field(self, owner: type[Struct], spec: FieldSpec, value: object, version: int) -> Value:
        if value is None:
            return NULL
        if (owner, spec.name) in normal.ADDRESS | normal.BY_CHANCE:
            return f"<{spec.name}>"
        if spec.name in normal.WORDING:
            return "<text>" if value else ""
        if not spec.array:
            return self._element(spec, value, version)
        elements = [self._element(spec, e, version) for e in cast("tuple[object, ...]", value)]
        if (owner, spec.name) in normal.OTHERS:
            elements = [each for each in elements if "${group}" in render(each)]
        if (owner, spec.name) in normal.UNORDERED:
            elements.sort(key=_in_order)
        return _shortened(spec.struct, elements)

    def _element(self, spec: FieldSpec, value: object, version: int) -> Value:
        if isinstance(value, consumer_group_records.OwnedTopicPartitions):
            value = _with_epochs_sorted(value)
        if isinstance(value, Struct):
            table = self.table(value, version)
            single = SINGLE.get(type(value))
            return table if single is None else table.get(single, {})
        if isinstance(value, bytes):
            return self._bytes(value)
        if isinstance(value, str | uuid.UUID):
            return self._names.show(value)
        return cast("int | bool", value)

    def _bytes(self, value: bytes) -> Value:
        if value.isascii() and value.decode().isprintable():
            return self._names.show(value.decode())
        for decode, encode in _PROTOCOL:
            try:
                read = decode(value)
            except RemoteProtocolError:
                continue
            version = int.from_bytes(value[:2])
            if version <= PROTOCOL_VERSION and encode(read, version) == value:
                return {"version": version, **self.table(read, version)}
        return f"hex:{value.hex()}"


def _in_order(value: Value) -> tuple[int, str]:
    """Numbers by their size, all else by how it looks."""
    return (value, "") if isinstance(value, int) else (0, render(value))


def _with_epochs_sorted(owned: consumer_group_records.OwnedTopicPartitions) -> Struct:
    """Put partitions in order, each with its epoch; Kafka's come out of a hash map."""
    epochs = owned.assignment_epochs or ()
    if len(epochs) != len(owned.partitions):
        return owned
    pairs = sorted(zip(owned.partitions, epochs, strict=True))
    return replace(
        owned,
        partitions=tuple(partition for partition, _ in pairs),
        assignment_epochs=tuple(epoch for _, epoch in pairs),
    )


def _shortened(cls: type[Struct] | None, elements: list[Value]) -> Value:
    """Return the short form of a list of structures where nothing is lost by it."""
    if cls not in SHORT or not elements:
        return elements
    key, rest = SHORT[cls]
    tables = [cast("dict[str, Value]", each) for each in elements]
    shape = {key, rest}
    keys = [str(table.get(key, 0 if "index" in key else "")) for table in tables]
    if any(set(table) - shape for table in tables) or len(set(keys)) < len(keys):
        return elements
    empty: Value = [] if rest.startswith("partition") else ""
    return {name: table.get(rest, empty) for name, table in zip(keys, tables, strict=True)}


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, from a list that is not ours."""
    return ErrorCode(code).name.upper()


def response_table(response: Message, version: int, names: Names) -> dict[str, Value]:
    """Return an answer as it stands in the data files."""
    return Shower(names).table(response, version)
