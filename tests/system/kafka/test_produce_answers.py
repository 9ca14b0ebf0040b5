"""What a producer may not send is refused as Apache Kafka refuses it: the same bytes to both."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kohort.broker import EmbeddedBroker
from kohort.errors import ErrorCode
from kohort.types import TopicPartition
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.messages.producer_ids import InitProducerIdRequest
from kohort.wire.records import Compression, Record, encode_batch
from kohort.wire.records._crc32c import crc32c
from tests.broker.peer import Peer
from tests.broker.processes import eventually
from tests.real_kafka.broker import RealKafka

HOUR_MS = 3_600_000
CREATE_TIME, APPEND_TIME = "create-time", "append-time"


@dataclass(frozen=True)
class Sent:
    """What is sent, and where to."""

    records: bytes
    topic: str = CREATE_TIME
    partition: int = 0
    acks: int = -1


def at(timestamp: int, codec: Compression = Compression.NONE) -> bytes:
    return encode_batch([Record(0, timestamp, b"k", b"v")], codec=codec)


def changed(position: int, layout: str, value: int) -> bytes:
    """A sound batch but for one field, with the checksum that goes with it."""
    out = bytearray(at(int(time.time() * 1000)))
    struct.pack_into(layout, out, position, value)
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


def counted(count: int) -> bytes:
    """A batch of one record that says to have another number of them."""
    out = bytearray(changed(23, ">i", count - 1))
    struct.pack_into(">i", out, 57, count)
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


def everything() -> Iterator[Sent]:
    now = int(time.time() * 1000)
    sound = at(now)
    for timestamp in (now, 0, -1, now + HOUR_MS // 2, now + 2 * HOUR_MS):
        yield Sent(at(timestamp))
        yield Sent(at(timestamp), topic=APPEND_TIME)
    for codec in Compression:
        yield Sent(at(now, codec))
    for acks in (0, 1, 2, -2):
        yield Sent(sound, acks=acks)
    yield Sent(sound, topic="nowhere")
    yield Sent(sound, topic="nowhere", acks=0)
    for partition in (-1, 9):
        yield Sent(sound, partition=partition)
    yield Sent(b"")
    yield Sent(sound * 2)
    yield Sent(sound[:-1])
    yield Sent(sound[:-1] + b"?")
    yield Sent(sound[:-1] + b"?", acks=0)
    yield Sent(changed(21, ">h", 0x10))  # of a transaction
    yield Sent(changed(21, ">h", 0x20))  # a marker of one
    yield Sent(changed(57, ">i", 0))
    yield Sent(changed(23, ">i", 3))
    yield Sent(counted(5))
    yield Sent(encode_batch([Record(0, now, None, b"v")]), topic="compacted")
    for codec in Compression:
        late = [Record(n, now + 2 * HOUR_MS * (n % 2), None, b"v") for n in range(6)]
        yield Sent(encode_batch(late, codec=codec))
        keyless = [Record(n, now, b"k" if n in {0, 3} else None, b"v") for n in range(6)]
        yield Sent(encode_batch(keyless, codec=codec), topic="compacted")


# An error code, and which records it is about.
Outcome = tuple[int, tuple[int, ...]]


def answers(bootstrap: str, topics: str) -> list[Outcome | None]:
    """The outcome of each; None where the connection is closed or nothing is answered."""
    with Peer(bootstrap) as peer:
        peer.create(topics + CREATE_TIME)
        peer.create(topics + APPEND_TIME, message_timestamp_type="LogAppendTime")
        peer.create(topics + "compacted", cleanup_policy="compact")
        for name in (CREATE_TIME, APPEND_TIME, "compacted"):
            partition = TopicPartition(topics + name, 0)
            eventually(
                lambda where=partition: peer.produce(where, at(0)).error_code == ErrorCode.NONE,  # type: ignore[misc]  # the default binds the loop's value
                "the topic takes records",
            )
    return [outcome_of(bootstrap, topics, sent) for sent in everything()]


def outcome_of(bootstrap: str, topics: str, sent: Sent) -> Outcome | None:
    data = PartitionProduceData(index=sent.partition, records=sent.records)
    topic = TopicProduceData(name=topics + sent.topic, partition_data=(data,))
    request = ProduceRequest(acks=sent.acks, timeout_ms=10_000, topic_data=(topic,))
    with Peer(bootstrap) as peer:
        if sent.acks:
            answer = peer.ask(request, 12).responses[0].partition_responses[0]
            return answer.error_code, tuple(each.batch_index for each in answer.record_errors)
        peer.send(request, 12)
        try:
            init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
            peer.ask(init, 4)
        except ConnectionError:
            return None
        return ErrorCode.NONE, ()


def test_both_brokers_refuse_the_same(real_kafka: RealKafka) -> None:
    topics = f"{uuid.uuid4().hex}-"
    with EmbeddedBroker() as broker:
        ours = answers(broker.bootstrap_servers, topics)
    theirs = answers(real_kafka.bootstrap_servers, topics)
    both = zip(everything(), ours, theirs, strict=True)
    assert [each for each in both if each[1] != each[2]] == []
    assert None in ours
    codes = {each[0] for each in ours if each is not None}
    assert {ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE} <= codes


@pytest.mark.parametrize("sequences", [[0, 1, 1, 3], [5], [-1], [*range(8), 1, 3]])
def test_both_brokers_know_the_same_repetitions(
    sequences: list[int], real_kafka: RealKafka
) -> None:
    topic = uuid.uuid4().hex
    with EmbeddedBroker() as broker:
        ours = repetitions(broker.bootstrap_servers, topic, sequences)
    assert ours == repetitions(real_kafka.bootstrap_servers, topic, sequences)


def repetitions(bootstrap: str, topic: str, sequences: list[int]) -> list[int]:
    """The error codes of batches of one idempotent producer, by their sequence numbers."""
    found: list[int] = []
    with Peer(bootstrap) as peer:
        peer.create(topic)
        partition = TopicPartition(topic, 0)
        eventually(lambda: peer.produce(partition, at(0)).error_code == 0, "the topic is there")
        init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        ids = []

        def got_id() -> bool:
            ids.append(peer.ask(init, 4))
            return ids[-1].error_code == ErrorCode.NONE

        eventually(got_id, "ids are given")
        for sequence in sequences:
            sent = encode_batch(
                [Record(0, 0, None, b"v")],
                producer_id=ids[-1].producer_id,
                producer_epoch=0,
                base_sequence=sequence,
            )
            found.append(peer.produce(partition, sent).error_code)
    return found


def test_both_brokers_take_the_last_of_what_is_for_one_partition(real_kafka: RealKafka) -> None:
    topic = uuid.uuid4().hex
    with EmbeddedBroker() as broker:
        ours = sent_twice(broker.bootstrap_servers, topic)
    assert ours == sent_twice(real_kafka.bootstrap_servers, topic)
    assert ours == {0: 5, 1: 1}


def sent_twice(bootstrap: str, topic: str) -> dict[int, int]:
    """How many records each partition takes when partition 0 gets 2, then 3, then 5 of them."""
    topics = tuple(
        TopicProduceData(
            name=topic,
            partition_data=tuple(
                PartitionProduceData(
                    index=partition,
                    records=encode_batch([Record(n, 0, None, b"v") for n in range(count)]),
                )
                for partition, count in each
            ),
        )
        for each in ([(0, 2), (1, 1), (0, 3)], [(0, 5)])
    )
    with Peer(bootstrap) as peer:
        peer.create(topic, 2)
        before = {partition: end(peer, topic, partition) for partition in (0, 1)}
        sent = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)
        answers = peer.ask(sent, 12).responses
        answered = {
            part.index: part.error_code for each in answers for part in each.partition_responses
        }
        assert answered == {0: ErrorCode.NONE, 1: ErrorCode.NONE}
        assert sum(len(each.partition_responses) for each in answers) == len(answered)
        return {
            partition: end(peer, topic, partition) - first - 1
            for partition, first in before.items()
        }


def end(peer: Peer, topic: str, partition: int) -> int:
    """Where the next record goes, which is one that this call sends."""
    found: list[int] = []

    def taken() -> bool:
        answer = peer.produce(TopicPartition(topic, partition), at(0))
        found.append(answer.base_offset)
        return answer.error_code == ErrorCode.NONE

    eventually(taken, "the partition takes a record")
    return found[-1]
