"""For each request that ACLs can deny, the response that consists of an error only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar, cast

from msgspec import NODEFAULT

from kohort.broker.refusals import REFUSABLE, refused
from kohort.errors import ErrorCode
from kohort.values import defaults, replace
from kohort.wire import apis
from kohort.wire.codec.schema import FieldSpec, Message, Struct, fields_of
from kohort.wire.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from kohort.wire.messages.offsets import OffsetDeleteRequest
from kohort.wire.messages.quotas import DescribeClientQuotasRequest
from kohort.wire.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    DescribeUserScramCredentialsRequest,
)
from kohort.wire.messages.topics import CreatePartitionsRequest

S = TypeVar("S", bound=Struct)

# By response field, the request field with the same items.
_SOURCES = {
    "filter_results": ("filters",),
    "markers": ("markers",),
    "partition_result": ("partitions",),
    "partitions": ("partitions", "partition_indexes"),
    "replica_election_results": ("topic_partitions",),
    "responses": ("topics", "topic_names", "resources"),
    "results": ("topics", "resources", "creations", "users"),
    "results_by_partition": ("partitions",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "topics": ("topics",),
    "transaction_states": ("transactional_ids",),
}
# Fields that name an item, which the response repeats.
_NAMES = (
    *("group_id", "key", "name", "partition", "partition_id", "partition_index", "producer_id"),
    *("resource_name", "resource_type", "topic", "topic_id", "topic_name", "transactional_id"),
)
_ALIASES = {"partition_index": "partition", "partition_id": "partition", "topic_name": "name"}
# The other responses that can be denied have an error message beside the code.
_REFUSABLE = REFUSABLE - {"IncrementalAlterConfigs"}
_WORDLESS = (
    CreatePartitionsRequest,
    DescribeClientQuotasRequest,
    DescribeUserScramCredentialsRequest,
)
_CODES = ("error_code", "partition_error_code")


def denied(request: Message, version: int, code: ErrorCode) -> Message:
    """Return a response of the right class and shape with the error `code`."""
    if isinstance(request, AlterUserScramCredentialsRequest):
        return _credentials(request, code)
    if isinstance(request, AlterReplicaLogDirsRequest):
        return _log_dirs(request, code)
    if isinstance(request, DescribeLogDirsRequest):
        return DescribeLogDirsResponse(error_code=code, results=())
    if type(request).__name__.removesuffix("Request") in _REFUSABLE:
        return refused(request, version, code)
    return _answer(request, version, code)


def denied_parts(request: Message, version: int, code: ErrorCode, field: str) -> Iterable[object]:
    """Return the response items for denied items of a request.

    Args:
        request: The request with only the denied items.
        version: Version of the request.
        code: The error.
        field: Field of the response that has the items.
    """
    # An OffsetDelete that is denied as a whole has no topics in its response.
    make = _answer if isinstance(request, OffsetDeleteRequest) else denied
    return cast("Iterable[object]", getattr(make(request, version, code), field))


def _answer(request: Message, version: int, code: ErrorCode) -> Message:
    answer = _denied(apis.response_class(request.api_key), request, version, code)
    return answer if isinstance(request, _WORDLESS) else _worded(answer, code)


def _denied(cls: type[S], like: object, version: int, code: ErrorCode) -> S:
    """Create a response, or a part of one, from the request that it answers."""
    given = defaults(cls)
    values = {
        spec.name: _value(spec, given[spec.name] is NODEFAULT, like, version, code)
        for spec in fields_of(cls, version)
        if spec.present
    }
    return cls(**values)


def _worded(answer: S, code: ErrorCode) -> S:
    """Add an error message to each code."""
    names = answer.__struct_fields__
    parts = {
        name: tuple(_worded(each, code) for each in value)
        for name in names
        if isinstance(value := getattr(answer, name), tuple) and value
    }
    text = {"error_message": _said(code)} if "error_message" in names else {}
    return replace(answer, **parts, **text)


def _value(
    spec: FieldSpec, is_required: bool, like: object, version: int, code: ErrorCode
) -> object:
    if spec.name in _CODES:
        return code
    if spec.array:
        kind = spec.struct
        if kind is None or spec.name not in _SOURCES:
            return None if spec.nullable and is_required else spec.default
        return tuple(_denied(kind, each, version, code) for each in _parts(like, spec.name))
    if spec.name in _NAMES:
        return _name(spec, like)
    return -1 if is_required and spec.kind.startswith("int") else spec.default


def _parts(like: object, field: str) -> Iterable[object]:
    found = (getattr(like, name, None) for name in _SOURCES.get(field, ()))
    return next((cast("Sequence[object]", each) for each in found if each), ())


def _said(code: ErrorCode) -> str:
    return f"{code.name.removesuffix('_FAILED').replace('_', ' ').capitalize()} failed."


def _name(spec: FieldSpec, like: object) -> object:
    """Return the name of an item; in some requests the item is only a name."""
    if isinstance(like, str if spec.kind == "string" else int):
        return like
    field = spec.name if hasattr(like, spec.name) else _ALIASES.get(spec.name, spec.name)
    return getattr(like, field, spec.default)


def _credentials(
    request: AlterUserScramCredentialsRequest, code: ErrorCode
) -> AlterUserScramCredentialsResponse:
    names = [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    results = (
        AlterUserScramCredentialsResult(user=name, error_code=code, error_message=_said(code))
        for name in dict.fromkeys(names)
    )
    return AlterUserScramCredentialsResponse(results=tuple(results))


def _log_dirs(request: AlterReplicaLogDirsRequest, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    results = (
        AlterReplicaLogDirTopicResult(
            topic_name=topic.name,
            partitions=tuple(
                AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code)
                for number in topic.partitions
            ),
        )
        for each in request.dirs
        for topic in each.topics
    )
    return AlterReplicaLogDirsResponse(results=tuple(results))
