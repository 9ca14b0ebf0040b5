"""Responses of the broker to requests over TCP."""

from __future__ import annotations

import inspect
import re
import struct
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.broker import BrokerConfig, EmbeddedBroker
from kohort.broker.dispatch import served_with
from kohort.errors import ErrorCode
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire import apis
from kohort.wire.codec import frame
from kohort.wire.codec.schema import ZERO_UUID, Message, fields_of
from kohort.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from kohort.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kohort.wire.messages.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.messages.producer_ids import InitProducerIdRequest
from kohort.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kohort.wire.records import Compression, Record, decode_records, encode_batch, iter_batches
from kohort.wire.records._crc32c import crc32c
from tests.broker.log.batches import batch
from tests.broker.peer import Peer

T = TopicPartition("t", 0)
# The APIs that a broker serves by default.
DEFAULT = served_with(BrokerConfig().protocols)
VERSIONS = [
    (key, version) for key, s in sorted(DEFAULT.items()) for version in range(s.first, s.last + 1)
]
DOCS = Path(__file__).parents[2] / "docs" / "broker.md"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        running.create_topic("t")
        yield running


@pytest.fixture
def peer(broker: EmbeddedBroker) -> Iterator[Peer]:
    with Peer(broker.bootstrap_servers) as made:
        yield made


def minimal(cls: type[Message], version: int) -> Message:
    """Return a request whose required fields are empty, zero or null."""
    nothing = {
        "int8": 0,
        "int16": 0,
        "int32": 0,
        "int64": 0,
        "string": "",
        "bytes": b"",
        "bool": False,
    }
    parameters = inspect.signature(cls).parameters.values()
    required = {each.name for each in parameters if each.default is each.empty}
    values = {
        spec.name: () if spec.array else nothing[spec.kind]
        for spec in fields_of(cls, version)
        if spec.name in required
    }
    return cls(**values)


def with_count(sound: bytes, count: int) -> bytes:
    """Return a batch with another number of records in its header."""
    changed = bytearray(sound)
    changed[23:27] = struct.pack(">i", count - 1)
    changed[57:61] = struct.pack(">i", count)
    return with_crc(changed)


def with_codec(sound: bytes, codec: Compression) -> bytes:
    """Return a batch with a codec in its header that was not applied."""
    changed = bytearray(sound)
    changed[21:23] = struct.pack(">h", codec)
    return with_crc(changed)


def with_crc(changed: bytearray) -> bytes:
    """Return a batch with the right checksum."""
    changed[17:21] = struct.pack(">I", crc32c(bytes(changed[21:])))
    return bytes(changed)


def values(part: PartitionData) -> list[bytes | None]:
    """Return the values of all fetched records."""
    batches = iter_batches(part.records or b"")
    return [record.value for _, batch in batches for record in decode_records(batch)]


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_every_version_of_every_api_is_answered(key: int, version: int, peer: Peer) -> None:
    peer.send(minimal(apis.request_class(key), version), version)
    if key == ProduceRequest.api_key:  # acks=0: no response
        peer.send(ApiVersionsRequest(), 0)
        assert peer.answer(ApiVersionsResponse, 0).error_code == 0
        return
    data = memoryview(peer.frame())
    assert frame.decode_response(apis.response_class(key), version, data) is not None


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("peer", ""), ("a peer", "1")])
def test_clients_say_what_they_are(name: str, version: str, peer: Peer) -> None:
    """KIP-511: letters, digits, dots and hyphens, since version 3."""
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    answer = peer.ask(request, 3)
    assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, ())
    assert peer.ask(request, 2).error_code == 0


def test_what_is_served_is_said(peer: Peer) -> None:
    request = ApiVersionsRequest(client_software_name="peer", client_software_version="1.0-rc1")
    answer = peer.ask(request, 3)
    told = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    served = {key: (served.first, served.last) for key, served in DEFAULT.items()}
    # librdkafka requires this before it compresses (KAFKA-18659); Kafka lists it too
    assert told == served | {ProduceRequest.api_key: (0, served[ProduceRequest.api_key][1])}


def test_a_newer_api_versions_request_is_told_what_we_speak(peer: Peer) -> None:
    peer.socket.sendall(b"\0\0\0\x0a\0\x12\0\x63\0\0\0\x07\xff\xff")
    answer = frame.decode_response(ApiVersionsResponse, 0, memoryview(peer.frame()))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert len(answer.api_keys) == len(DEFAULT)


def test_the_documented_table_is_what_is_served() -> None:
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \| (\d+) \|$", DOCS.read_text(), re.MULTILINE)
    served = [
        (apis.request_class(key).__name__.removesuffix("Request"), key, s.first, s.last)
        for key, s in sorted(DEFAULT.items())
    ]
    assert [(name, int(key), int(a), int(b)) for name, key, a, b in rows] == served


# ------------------------------------------------------------------------------------- produce


def test_offsets_of_what_was_appended_follow_each_other(peer: Peer) -> None:
    peer.create("appended")
    partition = TopicPartition("appended", 0)
    assert peer.produce(partition, batch(b"a", b"b")).base_offset == 0
    assert peer.produce(partition, batch(b"c"), acks=1).base_offset == 2
    assert values(peer.fetch(partition, 0)) == [b"a", b"b", b"c"]
    assert values(peer.fetch(partition, 2)) == [b"c"]


def test_acks_0_is_appended_and_not_answered(peer: Peer) -> None:
    peer.create("unanswered")
    partition = TopicPartition("unanswered", 0)
    data = PartitionProduceData(index=0, records=batch(b"a"))
    topic = TopicProduceData(name="unanswered", partition_data=(data,))
    peer.send(ProduceRequest(acks=0, timeout_ms=0, topic_data=(topic,)), 9)
    assert peer.fetch(partition, 0).high_watermark == 1


@pytest.mark.parametrize(
    ("topic", "records"),
    [("missing", batch(b"a")), ("t", batch(b"a")[:-1] + b"?")],
    ids=["missing", "damaged"],
)
def test_acks_0_and_an_error_close_the_connection(topic: str, records: bytes, peer: Peer) -> None:
    data = PartitionProduceData(index=0, records=records)
    wanted = TopicProduceData(name=topic, partition_data=(data,))
    peer.send(ProduceRequest(acks=0, timeout_ms=0, topic_data=(wanted,)), 9)
    assert peer.is_closed()


@pytest.mark.parametrize("minutes", [59, 61])
def test_no_record_is_of_a_time_far_ahead(minutes: int, peer: Peer) -> None:
    peer.create(f"ahead-{minutes}", max_message_bytes="2000")
    peer.create(f"stamped-{minutes}", message_timestamp_type="LogAppendTime")
    ahead = batch(b"a", timestamp=int(time.time() * 1000) + minutes * 60_000)
    expected = ErrorCode.INVALID_TIMESTAMP if minutes > 60 else ErrorCode.NONE
    taken = peer.produce(TopicPartition(f"ahead-{minutes}", 0), ahead)
    assert taken.error_code == expected
    assert peer.produce(TopicPartition(f"stamped-{minutes}", 0), ahead).error_code == 0


def test_the_broker_stamps_records_where_the_topic_says_so(peer: Peer) -> None:
    peer.create("stamped", message_timestamp_type="LogAppendTime")
    partition = TopicPartition("stamped", 0)
    appended = peer.produce(partition, batch(b"a", timestamp=1_000))
    assert appended.log_append_time_ms > 1_600_000_000_000
    (record,) = decode_records(peer.fetch(partition, 0).records or b"")
    assert record.timestamp == appended.log_append_time_ms


@pytest.mark.parametrize(
    ("partition", "records", "acks", "code"),
    [
        (TopicPartition("missing", 0), batch(b"a"), -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("t", 1), batch(b"a"), -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("t", -1), batch(b"a"), -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (T, batch(b"a"), 7, ErrorCode.INVALID_REQUIRED_ACKS),
        (T, batch(b"a")[:-1], -1, ErrorCode.INVALID_RECORD),
        (T, batch(b"a")[:-1] + b"?", -1, ErrorCode.CORRUPT_MESSAGE),
        (T, b"", -1, ErrorCode.INVALID_RECORD),
        (T, batch(b"a") * 2, -1, ErrorCode.INVALID_RECORD),
        (T, with_count(batch(b"a"), 5), -1, ErrorCode.INVALID_RECORD),
        (T, with_codec(batch(b"a"), Compression.GZIP), -1, ErrorCode.CORRUPT_MESSAGE),
        (
            T,
            encode_batch([Record(0, 0, None, b"a")], is_transactional=True),
            -1,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (T, batch(b"x" * 1_100_000), -1, ErrorCode.MESSAGE_TOO_LARGE),
        (TopicPartition("__consumer_offsets", 0), batch(b"a"), -1, 17),
    ],
    ids=lambda value: "records" if isinstance(value, bytes) else str(value),
)
def test_what_cannot_be_appended_is_refused(
    partition: TopicPartition, records: bytes, acks: int, code: int, peer: Peer
) -> None:
    end = peer.fetch(T, 0).high_watermark
    refused = peer.produce(partition, records, acks)
    assert (refused.error_code, refused.base_offset) == (code, -1)
    assert peer.fetch(T, 0).high_watermark == end


def test_a_topic_id_that_nobody_has_is_unknown(peer: Peer) -> None:
    data = PartitionProduceData(index=0, records=batch(b"a"))
    topic = TopicProduceData(topic_id=uuid.uuid4(), partition_data=(data,))
    answer = peer.ask(ProduceRequest(acks=1, timeout_ms=0, topic_data=(topic,)), 13)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    missing = FetchTopic(topic_id=uuid.uuid4(), partitions=(wanted,))
    fetched = peer.ask(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=(missing,)), 18)
    assert fetched.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_producer_ids_are_never_given_twice(peer: Peer) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    given = [peer.ask(request, 4).producer_id for _ in range(2_100)]
    assert len(set(given)) == len(given)


# ------------------------------------------------------------------------------------- fetch


def test_fetch_errors_are_told_at_once(peer: Peer) -> None:
    cases = [
        (TopicPartition("missing", 0), 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("t", 9), 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (T, 10**9, ErrorCode.OFFSET_OUT_OF_RANGE),
        (T, -5, ErrorCode.OFFSET_OUT_OF_RANGE),
    ]
    for partition, offset, code in cases:
        assert peer.fetch(partition, offset, max_wait_ms=60_000).error_code == code


def test_a_fetch_waits_for_the_next_append(broker: EmbeddedBroker, peer: Peer) -> None:
    peer.create("awaited")
    partition = TopicPartition("awaited", 0)
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="awaited", partitions=(wanted,))
    peer.send(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=(topic,)), 12)
    with Peer(broker.bootstrap_servers) as other:
        other.produce(partition, batch(b"late"))
    answer = peer.answer(FetchResponse, 12)
    assert values(answer.responses[0].partitions[0]) == [b"late"]


def test_a_fetch_waits_for_as_many_bytes_as_it_wants(broker: EmbeddedBroker, peer: Peer) -> None:
    peer.create("counted")
    partition = TopicPartition("counted", 0)
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="counted", partitions=(wanted,))
    peer.send(FetchRequest(max_wait_ms=60_000, min_bytes=1_000, topics=(topic,)), 12)
    with Peer(broker.bootstrap_servers) as other:
        for _ in range(3):
            other.produce(partition, batch(b"x" * 400))
    peer.frame()
    assert peer.fetch(partition, 0).high_watermark == 3


def test_a_fetch_returns_one_batch_however_small_its_limit(peer: Peer) -> None:
    peer.create("large")
    partition = TopicPartition("large", 0)
    for _ in range(2):
        peer.produce(partition, batch(b"x" * 10_000))
    for limit in (1, 0):
        one = peer.fetch(partition, 0, max_bytes=limit)
        assert len(decode_records(one.records or b"")) == 1


# ------------------------------------------------------------------------------------- offsets


def list_offset(peer: Peer, partition: TopicPartition, timestamp: int) -> tuple[int, int, int]:
    """Return error code, offset and timestamp of the response."""
    wanted = ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp)
    topic = ListOffsetsTopic(name=partition.topic, partitions=(wanted,))
    answer = peer.ask(ListOffsetsRequest(replica_id=-1, topics=(topic,)), 11)
    found = answer.topics[0].partitions[0]
    return found.error_code, found.offset, found.timestamp


def test_offsets_are_found_by_time_and_by_name(peer: Peer) -> None:
    peer.create("found")
    partition = TopicPartition("found", 0)
    assert list_offset(peer, partition, -3) == (0, -1, -1)
    for timestamp in (100, 300, 200):
        peer.produce(partition, batch(b"x", timestamp=timestamp))
    assert list_offset(peer, partition, -1) == (0, 3, -1)
    assert list_offset(peer, partition, -2) == (0, 0, -1)
    assert list_offset(peer, partition, -3) == (0, 1, 300)
    assert list_offset(peer, partition, 150) == (0, 1, 300)
    assert list_offset(peer, partition, 301) == (0, -1, -1)
    assert list_offset(peer, partition, -4) == (0, 0, -1)
    assert list_offset(peer, partition, -5) == (0, -1, -1)  # there is no tiered storage
    assert list_offset(peer, partition, -6) == (0, -1, -1)
    assert list_offset(peer, partition, -99)[0] == ErrorCode.UNSUPPORTED_VERSION
    missing = TopicPartition("missing", 0)
    assert list_offset(peer, missing, -1)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_one_epoch_ends_where_the_log_does(peer: Peer) -> None:
    peer.create("epochs")
    peer.produce(TopicPartition("epochs", 0), batch(b"x"))
    asked = [OffsetForLeaderPartition(partition=0, leader_epoch=epoch) for epoch in (0, 3)]
    topic = OffsetForLeaderTopic(topic="epochs", partitions=tuple(asked))
    answer = peer.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=(topic,)), 4)
    ends = [(p.leader_epoch, p.end_offset) for p in answer.topics[0].partitions]
    assert ends == [(0, 1), (-1, -1)]


# ------------------------------------------------------------------------------------- topics


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"name": "t"}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": ".."}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "a/b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "x" * 250}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "n", "num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "n", "num_partitions": 2**31 - 1}, ErrorCode.POLICY_VIOLATION),
        ({"name": "n", "replication_factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_topics_that_cannot_be_are_refused(
    change: dict[str, Any], code: ErrorCode, peer: Peer
) -> None:
    sound = CreatableTopic(
        name="n", num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    wanted = replace(sound, **change)
    answer = peer.ask(CreateTopicsRequest(topics=(wanted,)), 7)
    assert answer.topics[0].error_code == code


def test_a_topic_is_only_checked_when_that_is_asked(peer: Peer) -> None:
    wanted = CreatableTopic(
        name="only-checked", num_partitions=2, replication_factor=1, assignments=(), configs=()
    )
    answer = peer.ask(CreateTopicsRequest(topics=(wanted,), validate_only=True), 7)
    assert answer.topics[0].error_code == ErrorCode.NONE
    request = MetadataRequest(
        topics=(MetadataRequestTopic(name="only-checked"),), allow_auto_topic_creation=False
    )
    described = peer.ask(request, 12).topics[0]
    assert described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_grow_and_never_shrink(peer: Peer) -> None:
    peer.create("grown", 2)
    for count, code in [(1, 37), (2, 37), (4, 0), (3, 37)]:
        topic = CreatePartitionsTopic(name="grown", count=count, assignments=None)
        request = CreatePartitionsRequest(topics=(topic,), timeout_ms=1, validate_only=False)
        assert peer.ask(request, 3).results[0].error_code == code
    assert peer.produce(TopicPartition("grown", 3), batch(b"x")).error_code == ErrorCode.NONE
    beyond = peer.produce(TopicPartition("grown", 4), batch(b"x"))
    assert beyond.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_made_again_is_empty_and_has_another_id(peer: Peer) -> None:
    ids = []
    for _ in range(2):
        peer.create("again")
        assert peer.produce(TopicPartition("again", 0), batch(b"x")).base_offset == 0
        topic = MetadataRequestTopic(name="again")
        ids.append(peer.ask(MetadataRequest(topics=(topic,)), 12).topics[0].topic_id)
        state = DeleteTopicState(name="again", topic_id=ZERO_UUID)
        deleted = peer.ask(DeleteTopicsRequest(topics=(state,), timeout_ms=1), 6)
        assert deleted.responses[0].error_code == ErrorCode.NONE
    assert ids[0] != ids[1]
    by_id = DeleteTopicState(name=None, topic_id=ids[0])
    answer = peer.ask(DeleteTopicsRequest(topics=(by_id,), timeout_ms=1), 6)
    assert answer.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def described(peer: Peer, kind: int, name: str, *keys: str) -> tuple[int, dict[str, str | None]]:
    """Return the error, and the settings of one resource."""
    wanted = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys or None
    )
    (result,) = peer.ask(DescribeConfigsRequest(resources=(wanted,)), 4).results
    return result.error_code, {config.name: config.value for config in result.configs}


def test_settings_are_told_of_topics_and_of_the_broker(peer: Peer) -> None:
    peer.create("set", cleanup_policy="compact,delete", retention_ms="60000")
    code, topic = described(peer, 2, "set")
    assert (code, topic["cleanup.policy"], topic["retention.ms"]) == (0, "compact,delete", "60000")
    assert described(peer, 2, "set", "retention.ms") == (0, {"retention.ms": "60000"})
    assert described(peer, 2, "nowhere") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {})
    code, broker = described(peer, 4, "1")
    assert code == 0
    assert broker["offsets.retention.minutes"] == "10080"
    assert broker["auto.create.topics.enable"] == "true"
    assert described(peer, 32, "any")[1]["consumer.session.timeout.ms"] == "45000"
    for kind, name in ((4, "2"), (8, "1"), (32, ""), (99, "")):
        assert described(peer, kind, name)[0] == ErrorCode.INVALID_REQUEST
