"""For each request that a fault can refuse, the response that consists of an error only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from kohort.errors import ErrorCode
from kohort.group.coordinator import refusals
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kohort.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kohort.wire.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse


def _produce(request: ProduceRequest, _version: int, code: ErrorCode) -> ProduceResponse:
    responses = (
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=tuple(
                PartitionProduceResponse(index=each.index, error_code=code, base_offset=-1)
                for each in topic.partition_data
            ),
        )
        for topic in request.topic_data
    )
    return ProduceResponse(responses=tuple(responses))


def _fetch(request: FetchRequest, _version: int, code: ErrorCode) -> FetchResponse:
    responses = (
        FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=tuple(
                PartitionData(
                    partition_index=each.partition,
                    error_code=code,
                    high_watermark=-1,
                    aborted_transactions=(),
                    records=b"",
                )
                for each in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return FetchResponse(responses=tuple(responses))


def _list_offsets(
    request: ListOffsetsRequest, _version: int, code: ErrorCode
) -> ListOffsetsResponse:
    topics = (
        ListOffsetsTopicResponse(
            name=topic.name,
            partitions=tuple(
                ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return ListOffsetsResponse(topics=tuple(topics))


def _find_coordinator(
    request: FindCoordinatorRequest, version: int, code: ErrorCode
) -> FindCoordinatorResponse:
    if version < 4:
        return FindCoordinatorResponse(error_code=code, node_id=-1, port=-1)
    coordinators = (
        Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=None)
        for key in request.coordinator_keys
    )
    return FindCoordinatorResponse(coordinators=tuple(coordinators))


def _init_producer_id(
    _request: InitProducerIdRequest, _version: int, code: ErrorCode
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


_Refusal = Callable[[Message, int, ErrorCode], Message]
_OURS: dict[type[Message], _Refusal] = {
    ProduceRequest: cast("_Refusal", _produce),
    FetchRequest: cast("_Refusal", _fetch),
    ListOffsetsRequest: cast("_Refusal", _list_offsets),
    FindCoordinatorRequest: cast("_Refusal", _find_coordinator),
    InitProducerIdRequest: cast("_Refusal", _init_producer_id),
}

REFUSABLE: Final = frozenset(
    kind.__name__.removesuffix("Request") for kind in _OURS.keys() | refusals.REFUSABLE
)
"""The APIs whose requests can be refused, by Kafka's names."""


def refused(request: Message, version: int, code: ErrorCode) -> Message:
    """Return a response of the right class and shape with the error `code`."""
    make = _OURS.get(type(request))
    if make is not None:
        return make(request, version, code)
    return refusals.refuse(cast("Request[Message]", request), version, code)
