"""Requests of transactional producers: begin, add partitions, and end (KIP-98, 360, 890)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

from kohort.broker.authorization.acls import Operation, Resource, Rights
from kohort.broker.context import BrokerContext, Caller
from kohort.broker.coordination.coordinator import OFFSETS_TOPIC
from kohort.broker.handlers.groups import ask, then
from kohort.errors import ErrorCode, KafkaError
from kohort.group.coordinator.refusals import txn_commit_refused
from kohort.group.transactions.events import (
    AddPartitions,
    EndAndRenew,
    EndTransaction,
    InitProducer,
    Producer,
    VerifyPartition,
)
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from kohort.wire.messages.txn_requests import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kohort.wire.records.marker import Marker

_BATCHED_SINCE = 4  # of AddPartitionsToTxn
_RENEWS_SINCE = 5  # of EndTxn (KIP-890)
_ABORTABLE_SINCE, _JOINS_SINCE = 4, 5  # of TxnOffsetCommit: since 5, a commit joins by itself


# ------------------------------------------------------------------------------------ begin


def init_producer_id(
    broker: BrokerContext, request: InitProducerIdRequest, caller: Caller
) -> InitProducerIdResponse:
    """Return a producer id and epoch; without a transactional id, a fresh id each time."""
    knows_one_half = (request.producer_id >= 0) != (request.producer_epoch >= 0)
    name = request.transactional_id
    if knows_one_half or name == "":
        return _no_producer_id(ErrorCode.INVALID_REQUEST)
    try:
        if name is None:
            given = Producer(broker.data.next_producer_id(), 0)
            return _producer_id(given)
        effects = broker.transactions.request(
            InitProducer(
                transactional_id=name,
                timeout_ms=request.transaction_timeout_ms,
                expected=_expected(request),
                fresh_id=broker.transactions.fresh_id(name),
            )
        )
    except KafkaError as error:
        return _no_producer_id(error.code)
    if effects.producer is None:
        return _no_producer_id(_fenced(effects.error, caller.version, since=4))
    return _producer_id(effects.producer)


def _expected(request: InitProducerIdRequest) -> Producer | None:
    if request.producer_id < 0:
        return None
    return Producer(request.producer_id, request.producer_epoch)


def _producer_id(producer: Producer) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )


def _no_producer_id(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def _fenced(error: int, version: int, *, since: int) -> int:
    """Return the error for PRODUCER_FENCED that the client's version knows (KIP-588)."""
    if error == ErrorCode.PRODUCER_FENCED and version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


# --------------------------------------------------------------------------- add partitions


def add_partitions(
    broker: BrokerContext, request: AddPartitionsToTxnRequest, caller: Caller
) -> AddPartitionsToTxnResponse:
    """Add partitions to a transaction; since version 4 to several, in requests of brokers."""
    if caller.version >= _BATCHED_SINCE:
        results = (
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id, topic_results=_added(broker, each)
            )
            for each in request.transactions
        )
        return AddPartitionsToTxnResponse(results_by_transaction=tuple(results))
    alone = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    denied = _denied(alone, caller.rights)
    if denied:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=denied)
    added = _added(broker, alone, lambda code: _fenced(code, caller.version, since=2))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=added)


def _added(
    broker: BrokerContext,
    asked: AddPartitionsToTxnTransaction,
    shown: Callable[[int], int] = lambda code: code,
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    """Add all partitions or none: if one does not exist, the others are not attempted."""
    wanted = [
        TopicPartition(each.name, number) for each in asked.topics for number in each.partitions
    ]
    missing = {each for each in wanted if not broker.has(each)}
    if missing:
        codes = dict.fromkeys(wanted, ErrorCode.OPERATION_NOT_ATTEMPTED)
        codes |= dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return _results(asked.topics, codes)
    if asked.verify_only:
        return _results(asked.topics, {each: _verified(broker, asked, each) for each in wanted})
    code = ErrorCode.INVALID_REQUEST
    if asked.transactional_id:
        event = AddPartitions(
            transactional_id=asked.transactional_id,
            producer=Producer(asked.producer_id, asked.producer_epoch),
            partitions=frozenset(wanted),
        )
        code = _answered(broker, event)
    return _results(asked.topics, dict.fromkeys(wanted, shown(code)))


def _denied(
    asked: AddPartitionsToTxnTransaction, rights: Rights
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    """Reject all partitions if the client may not write to one: the others are not attempted."""
    hidden = {
        t.name for t in asked.topics if not rights.may(Operation.WRITE, Resource.TOPIC, t.name)
    }
    if not hidden:
        return ()
    failed, left = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OPERATION_NOT_ATTEMPTED
    codes = {
        TopicPartition(topic.name, number): failed if topic.name in hidden else left
        for topic in asked.topics
        for number in topic.partitions
    }
    return _results(asked.topics, codes)


def _verified(
    broker: BrokerContext, asked: AddPartitionsToTxnTransaction, partition: TopicPartition
) -> int:
    producer = Producer(asked.producer_id, asked.producer_epoch)
    event = VerifyPartition(
        transactional_id=asked.transactional_id, producer=producer, partition=partition
    )
    return _answered(broker, event)


def _answered(
    broker: BrokerContext, event: AddPartitions | VerifyPartition | EndTransaction
) -> ErrorCode:
    try:
        return broker.transactions.request(event).error
    except KafkaError as error:
        return ErrorCode(error.code)


def _results(
    topics: Iterable[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, int]
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    return tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=number,
                    partition_error_code=codes[TopicPartition(topic.name, number)],
                )
                for number in topic.partitions
            ),
        )
        for topic in topics
    )


def add_offsets(
    broker: BrokerContext, request: AddOffsetsToTxnRequest, caller: Caller
) -> AddOffsetsToTxnResponse:
    """Add a group's offsets partition to a transaction."""
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    event = AddPartitions(
        transactional_id=request.transactional_id,
        producer=Producer(request.producer_id, request.producer_epoch),
        partitions=frozenset({_place_of(broker, request.group_id)}),
    )
    code = _fenced(_answered(broker, event), caller.version, since=2)
    return AddOffsetsToTxnResponse(error_code=code)


def _place_of(broker: BrokerContext, group_id: str) -> TopicPartition:
    return TopicPartition(OFFSETS_TOPIC, broker.coordinator.shard_of(group_id))


def commit_offsets(
    broker: BrokerContext, request: TxnOffsetCommitRequest, caller: Caller
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    """Commit offsets that take effect when the transaction commits (KIP-447)."""
    place = _place_of(broker, request.group_id)
    producer = Producer(request.producer_id, request.producer_epoch)
    known = _of_what_is_there(broker, request)
    log = broker.data.log(place)
    if any(topic.partitions for topic in known.topics) and not log.producers.is_open(
        producer.producer_id, producer.epoch
    ):
        try:
            implied = caller.version >= _JOINS_SINCE
            broker.transactions.join(request.transactional_id, producer, place, implied=implied)
        except KafkaError as error:
            code = _of_commit(ErrorCode(error.code), caller.version)
            return _with_missing(broker, request, txn_commit_refused(known, code))
    answer = ask(broker, request.group_id, known, caller)
    return then(answer, lambda done: _with_missing(broker, request, done))


def _of_what_is_there(
    broker: BrokerContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitRequest:
    topics = tuple(
        replace(topic, partitions=tuple(_there(broker, topic))) for topic in request.topics
    )
    return replace(request, topics=topics)


def _there(
    broker: BrokerContext, topic: TxnOffsetCommitRequestTopic
) -> Iterator[TxnOffsetCommitRequestPartition]:
    for each in topic.partitions:
        if broker.has(TopicPartition(topic.name, each.partition_index)):
            yield each


def _with_missing(
    broker: BrokerContext, request: TxnOffsetCommitRequest, done: TxnOffsetCommitResponse
) -> TxnOffsetCommitResponse:
    """Add the unknown partitions to the response, with an error each."""
    topics = []
    for asked, topic in zip(request.topics, done.topics, strict=True):
        there = {each.partition_index for each in _there(broker, asked)}
        missing = tuple(
            TxnOffsetCommitResponsePartition(
                partition_index=each.partition_index,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            for each in asked.partitions
            if each.partition_index not in there
        )
        topics.append(replace(topic, partitions=(*topic.partitions, *missing)))
    return replace(done, topics=tuple(topics))


def _of_commit(error: ErrorCode, version: int) -> ErrorCode:
    """Return the error in a commit's response for an error of the transaction coordinator."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and version < _JOINS_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error


# -------------------------------------------------------------------------------------- end


def end_transaction(
    broker: BrokerContext, request: EndTxnRequest, caller: Caller
) -> EndTxnResponse:
    """Commit or abort; since version 5 the producer continues with another epoch (KIP-890)."""
    name, producer = request.transactional_id, Producer(request.producer_id, request.producer_epoch)
    event: EndTransaction | EndAndRenew = EndTransaction(
        transactional_id=name, producer=producer, commits=request.committed
    )
    try:
        if caller.version >= _RENEWS_SINCE:
            event = EndAndRenew(
                transactional_id=name,
                producer=producer,
                commits=request.committed,
                fresh_id=broker.transactions.fresh_id(name),
            )
        effects = broker.transactions.request(event)
    except KafkaError as error:
        return EndTxnResponse(error_code=error.code)
    given = effects.producer or Producer(-1, -1)
    return EndTxnResponse(
        error_code=_fenced(effects.error, caller.version, since=2),
        producer_id=given.producer_id,
        producer_epoch=given.epoch,
    )


def write_markers(
    broker: BrokerContext, request: WriteTxnMarkersRequest, _caller: Caller
) -> WriteTxnMarkersResponse:
    """End transactions in partitions, as administrators do for hanging ones (KIP-664)."""
    results = (
        WritableTxnMarkerResult(
            producer_id=asked.producer_id,
            topics=tuple(
                WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=tuple(
                        WritableTxnMarkerPartitionResult(
                            partition_index=number,
                            error_code=_marked(broker, TopicPartition(topic.name, number), asked),
                        )
                        for number in topic.partition_indexes
                    ),
                )
                for topic in asked.topics
            ),
        )
        for asked in request.markers
    )
    return WriteTxnMarkersResponse(markers=tuple(results))


def _marked(broker: BrokerContext, partition: TopicPartition, asked: WritableTxnMarker) -> int:
    if not broker.has(partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    marker = Marker(asked.producer_id, asked.producer_epoch, asked.transaction_result)
    try:
        broker.transactions.mark(partition, marker)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
