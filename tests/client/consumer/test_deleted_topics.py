"""Topics that are deleted, and recreated under the same name, while a group reads them.

A deleted topic must not delay other topics, and an offset of one topic must never be used for
another (KIP-516): neither as a commit nor as a position.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from kohort.broker import EmbeddedBroker
from kohort.client import Consumer
from kohort.errors import ErrorCode, KafkaError, PartialFailureError
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.codec import frame as frames
from kohort.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.client.cutting_proxy import CuttingProxy
from tests.client.observing import Recorder
from tests.client.refusing_proxy import RefusingProxy
from tests.real_kafka import foreign
from tests.real_kafka.broker import RealKafka

DEADLINE_S = 60
NEVER_MS = 3_600_000
RECORDS = 20
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": "range"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture(scope="module")
def embedded() -> Iterator[str]:
    with EmbeddedBroker() as running:
        yield running.bootstrap_servers


@pytest.fixture(params=["embedded", "kafka"])
def broker(request: pytest.FixtureRequest, embedded: str) -> str:
    if request.param == "embedded":
        return embedded
    kafka: RealKafka = request.getfixturevalue("real_kafka")
    return kafka.bootstrap_servers


def delete(broker: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker})
    admin.delete_topics([topic])[topic].result(foreign.TIMEOUT_S)


def until(condition: Callable[[], object], *consumers: Consumer) -> None:
    """Wait for a condition while consumers poll and read nothing."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        for consumer in consumers:
            consumer.poll_membership(20)


class Reader:
    """A consumer and the records it has read."""

    def __init__(self, broker: str, group: str | None, *topics: str, **settings: Any) -> None:
        chosen: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "allow_auto_create_topics": False,
        } | settings
        self.consumer = Consumer(bootstrap_servers=broker, group_id=group, **chosen)
        if topics:
            self.consumer.subscribe(topics)
        self.seen: Counter[tuple[str, bytes | None]] = Counter()

    def poll(self) -> None:
        for partition, records in self.consumer.poll(50).items():
            self.seen.update((partition.topic, record.value) for record in records)

    def count(self, topic: str) -> int:
        return sum(count for (name, _), count in self.seen.items() if name == topic)


def read_until(condition: Callable[[], object], *readers: Reader) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, [reader.seen for reader in readers]
        for reader in readers:
            reader.poll()


class LateProxy(CuttingProxy):
    """Plays a broker that has not learned of a deletion, unless asked only about that topic.

    A member that learns of it before it closes is in a rebalance, and its commit is refused.

    Attributes:
        is_late: Whether it repeats its last answer about several topics.
    """

    def __init__(self, broker: str) -> None:
        super().__init__(broker, lambda _: False)
        self.is_late = False
        self._said: MetadataResponse | None = None

    def _renamed(self, frame: bytes, version: int, number: int) -> bytes:
        renamed = super()._renamed(frame, version, number)
        response = frames.decode_response(MetadataResponse, version, memoryview(renamed)[4:])
        if len(response.topics) < 2:
            return renamed
        if self._said is None or not self.is_late:
            self._said = response
        return bytes(frames.encode_response(self._said, version, number))


def values(prefix: bytes, count: int = RECORDS) -> list[bytes]:
    return [prefix + b"%d" % number for number in range(count)]


# --------------------------------------------------------------------------------- a topic is gone


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_deleted_topic_does_not_stop_the_others(
    broker: str, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Two members with default settings; half of the committed partitions are deleted."""
    group, kept, gone = uuid.uuid4().hex, foreign.new_topic(broker, 2), foreign.new_topic(broker, 2)
    for topic in (kept, gone):
        for partition in range(2):
            foreign.produce(broker, topic, values(b"%d-" % partition), partition)
    settings = PROTOCOLS[protocol] | {"auto_commit_interval_ms": NEVER_MS}
    first = Reader(broker, group, kept, gone, **settings)
    with first.consumer:
        read_until(lambda: first.seen.total() == 4 * RECORDS, first)
        delete(broker, gone)
        for partition in range(2):
            foreign.produce(broker, kept, values(b"more-%d-" % partition), partition)
        second = Reader(broker, group, kept, gone, **settings)
        with second.consumer:
            read_until(lambda: has(second, kept, 1) and has(first, kept, 1), first, second)
            read_until(lambda: first.count(kept) + second.count(kept) == 4 * RECORDS, first, second)
    seen = first.seen + second.seen
    assert {count for (topic, _), count in seen.items() if topic == kept} == {1}
    assert [foreign.committed(broker, group, kept, each) for each in range(2)] == [2 * RECORDS] * 2
    assert f"{gone}-0 at offset {RECORDS}: the topic does not exist" in caplog.text


def has(reader: Reader, topic: str, count: int) -> bool:
    """Whether a member has this many partitions of a topic."""
    return sum(each.topic == topic for each in reader.consumer.assignment()) == count


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_deleted_topic_that_a_pattern_matched_is_not_made_anew(
    broker: str, protocol: str
) -> None:
    """It was never named explicitly, so the client must not ask in a way that creates it."""
    topic = foreign.new_topic(broker, 3)
    settings = PROTOCOLS[protocol] | {"allow_auto_create_topics": True, "metadata_max_age_ms": 100}
    with Recorder(broker) as recorder:
        reader = Reader(recorder.bootstrap_servers, uuid.uuid4().hex, **settings)
        with reader.consumer as consumer:
            consumer.subscribe(pattern=f"{topic}.*")
            read_until(lambda: has(reader, topic, 3), reader)
            delete(broker, topic)
            read_until(lambda: has(reader, topic, 0), reader)
            before = len(recorder.asked(MetadataRequest))
            read_until(lambda: len(recorder.asked(MetadataRequest)) > before + 2, reader)
            assert topic not in consumer.topics()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_closing_with_a_deleted_topic_commits_the_others_at_once(
    broker: str, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    group, kept, gone = close_with_a_deleted_topic(broker, protocol)
    assert "could not be left in time" not in caplog.text
    assert foreign.committed(broker, group, kept) == RECORDS
    (said,) = [each for each in caplog.messages if "no longer exist" in each]
    assert f"{gone}-0 at offset {RECORDS}: the topic does not exist" in said


def close_with_a_deleted_topic(broker: str, protocol: str) -> tuple[str, str, str]:
    """Return the group, the remaining topic, and the deleted one."""
    group, kept, gone = uuid.uuid4().hex, foreign.new_topic(broker), foreign.new_topic(broker)
    for topic in (kept, gone):
        foreign.produce(broker, topic, values(b""))
    settings = PROTOCOLS[protocol] | {"auto_commit_interval_ms": NEVER_MS}
    with LateProxy(broker) as proxy:
        reader = Reader(proxy.bootstrap_servers, group, kept, gone, **settings)
        with reader.consumer:
            read_until(lambda: sum(reader.seen.values()) == 2 * RECORDS, reader)
            proxy.is_late = True
            delete(broker, gone)
            reader.consumer.close()
    return group, kept, gone


def commit_until_refused(consumer: Consumer) -> None:
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        consumer.commit()


def test_a_commit_of_a_deleted_topic_is_refused_and_the_rest_is_stored(broker: str) -> None:
    group, kept, gone = uuid.uuid4().hex, foreign.new_topic(broker), foreign.new_topic(broker)
    for topic in (kept, gone):
        foreign.produce(broker, topic, values(b""))
    reader = Reader(broker, group, enable_auto_commit=False)
    with reader.consumer as consumer:
        consumer.assign([TopicPartition(kept, 0), TopicPartition(gone, 0)])
        read_until(lambda: sum(reader.seen.values()) == 2 * RECORDS, reader)
        delete(broker, gone)
        with pytest.raises(PartialFailureError, match=f"{gone}-0 at offset {RECORDS}") as caught:
            commit_until_refused(consumer)  # the coordinator may learn late that it is gone
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert caught.value.errors.keys() == {TopicPartition(gone, 0)}
        assert (
            consumer.committed(TopicPartition(kept, 0))[TopicPartition(kept, 0)].offset == RECORDS
        )
        later = consumer.commit_async({TopicPartition(gone, 0): OffsetAndMetadata(1)})
        assert isinstance(later.exception(DEADLINE_S), KafkaError)


def test_auto_commit_leaves_a_deleted_topic_out_and_says_so_once(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    group, kept, gone = uuid.uuid4().hex, foreign.new_topic(broker), foreign.new_topic(broker)
    for topic in (kept, gone):
        foreign.produce(broker, topic, values(b""))
    with RefusingProxy(broker) as proxy:
        reader = Reader(proxy.bootstrap_servers, group, auto_commit_interval_ms=50)
        proxy.refuses = lambda _: True  # until the topic is gone
        with reader.consumer as consumer:
            done = TopicPartition(kept, 0)
            consumer.assign([done, TopicPartition(gone, 0)])
            read_until(lambda: reader.seen.total() == 2 * RECORDS, reader)
            reader.poll()
            delete(broker, gone)
            proxy.refuses = lambda _: False
            for end in range(2 * RECORDS, 5 * RECORDS, RECORDS):
                foreign.produce(broker, kept, values(b"more-%d" % end))
                until_stored(reader, done, end)
            until(lambda: "no longer exist" in caplog.text, consumer)
    said = [each for each in caplog.messages if "no longer exist" in each]
    assert len(said) == 1


def until_stored(reader: Reader, partition: TopicPartition, end: int) -> None:
    read_until(lambda: reader.count(partition.topic) == end, reader)
    # a poll marks the earlier records as processed
    read_until(lambda: stored(reader.consumer, partition) == end, reader)


def stored(consumer: Consumer, partition: TopicPartition) -> int | None:
    found = consumer.committed(partition).get(partition)
    return found.offset if found else None


@pytest.mark.parametrize("in_group", [True, False])
@pytest.mark.parametrize("prefix", ["a", "z"])
def test_a_topic_that_is_missing_does_not_stop_the_others(
    broker: str, prefix: str, in_group: bool
) -> None:
    """Positions are looked up for all together, and used as they are found."""
    topic, missing = foreign.new_topic(broker), f"{prefix}-missing-{uuid.uuid4().hex}"
    foreign.produce(broker, topic, values(b""))
    reader = Reader(broker, uuid.uuid4().hex if in_group else None)
    with reader.consumer as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(missing, 0)])
        read_until(lambda: reader.seen.total() == RECORDS, reader)
        foreign.create_topic(broker, missing, 1)
        foreign.produce(broker, missing, values(b""))
        read_until(lambda: reader.seen.total() == 2 * RECORDS, reader)


# ------------------------------------------------------------------------- a topic is recreated


def remake(broker: str, topic: str, count: int) -> None:
    """Delete a topic, recreate it and fill it."""
    delete(broker, topic)
    foreign.create_topic(broker, topic, 1)
    foreign.produce(broker, topic, values(b"new", count))


@pytest.mark.parametrize("count", [5, 2 * RECORDS])
@pytest.mark.parametrize("protocol", [*PROTOCOLS, "assigned"])
def test_all_records_of_a_topic_made_anew_are_read(
    broker: str, protocol: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether or not the old position is beyond the new end, which is noticed."""
    group, topic = uuid.uuid4().hex, foreign.new_topic(broker)
    foreign.produce(broker, topic, values(b"old"))
    reader = Reader(broker, group, **PROTOCOLS.get(protocol, {}), auto_commit_interval_ms=100)
    with reader.consumer as consumer:
        if protocol == "assigned":
            consumer.assign([TopicPartition(topic, 0)])
        else:
            consumer.subscribe([topic])
        read_until(lambda: reader.count(topic) == RECORDS, reader)
        remake(broker, topic, count)
        read_until(lambda: reader.count(topic) == RECORDS + count, reader)
        reader.poll()
    assert set(reader.seen.values()) == {1}
    assert foreign.committed(broker, group, topic) == count
    if protocol == "assigned":
        assert "recreated: its id was" in caplog.text


def test_a_record_of_the_old_topic_counts_for_the_new_one_if_it_is_stored_late(
    broker: str,
) -> None:
    """A record does not contain its topic's id; confluent-kafka stores its offset the same way."""
    group, topic = uuid.uuid4().hex, foreign.new_topic(broker)
    foreign.produce(broker, topic, values(b"old"))
    reader = Reader(broker, group, enable_auto_offset_store=False)
    partition = TopicPartition(topic, 0)
    with reader.consumer as consumer:
        consumer.subscribe([topic])
        old = next(record for record in consumer if record.offset == RECORDS - 1)
        remake(broker, topic, 2 * RECORDS)
        read_until(lambda: reader.count(topic) == 2 * RECORDS, reader)
        consumer.store_offsets(old)
        consumer.commit()
        assert stored(consumer, partition) == RECORDS


def test_a_paused_partition_of_a_topic_made_anew_is_read_from_its_start(broker: str) -> None:
    group, topic = uuid.uuid4().hex, foreign.new_topic(broker)
    foreign.produce(broker, topic, values(b"old"))
    reader = Reader(broker, group, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    with reader.consumer as consumer:
        consumer.assign([partition])
        read_until(lambda: reader.count(topic) == RECORDS, reader)
        consumer.pause(partition)
        remake(broker, topic, 2 * RECORDS)
        with pytest.raises(KafkaError, match="recreated"):
            consumer.commit()
        assert partition not in consumer.committed(partition)
        consumer.resume(partition)
        read_until(lambda: reader.count(topic) == 3 * RECORDS, reader)


def test_without_a_reset_policy_a_topic_made_anew_is_an_error_until_it_is_sought(
    broker: str,
) -> None:
    topic = foreign.new_topic(broker)
    foreign.produce(broker, topic, values(b"old"))
    reader = Reader(broker, None, auto_offset_reset="none")
    partition = TopicPartition(topic, 0)
    with reader.consumer as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        read_until(lambda: reader.count(topic) == RECORDS, reader)
        remake(broker, topic, 2 * RECORDS)
        with pytest.raises(KafkaError, match=r"recreated: its id was .* seek to continue"):
            read_until(lambda: False, reader)
        consumer.seek(partition, 0)
        read_until(lambda: reader.count(topic) == 3 * RECORDS, reader)


@pytest.mark.parametrize("count", [5, 2 * RECORDS])
def test_a_commit_that_is_tried_again_stays_with_its_topic(broker: str, count: int) -> None:
    """Its topic is deleted and recreated meanwhile: all records of the new topic are read."""
    group, topic = uuid.uuid4().hex, foreign.new_topic(broker)
    foreign.produce(broker, topic, values(b"old"))
    partition = TopicPartition(topic, 0)
    with RefusingProxy(broker) as proxy:
        reader = Reader(proxy.bootstrap_servers, group, topic, enable_auto_commit=False)
        with reader.consumer as consumer:
            read_until(lambda: reader.count(topic) == RECORDS, reader)
            proxy.refuses = lambda _: True
            commit = consumer.commit_async({partition: OffsetAndMetadata(RECORDS)})
            until(lambda: proxy.refused)
            remake(broker, topic, count)
            proxy.refuses = lambda _: False
            error = commit.exception(DEADLINE_S)
            assert isinstance(error, KafkaError)
            assert error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert foreign.committed(broker, group, topic) < 0
    later = Reader(broker, group, topic)
    with later.consumer:
        read_until(lambda: later.count(topic) == count, later)


def test_by_names_alone_a_commit_stays_with_its_topic_as_soon_as_the_new_one_is_known(
    broker: str,
) -> None:
    """A broker before OffsetCommit 10 knows no ids there: the client compares them."""
    group, topic, other = uuid.uuid4().hex, foreign.new_topic(broker), f"no-{uuid.uuid4().hex}"
    foreign.produce(broker, topic, values(b"old"))
    partition = TopicPartition(topic, 0)
    with RefusingProxy(broker) as proxy:
        reader = Reader(proxy.bootstrap_servers, group, enable_auto_commit=False)
        with reader.consumer as consumer:
            consumer.assign([partition])
            read_until(lambda: reader.count(topic) == RECORDS, reader)
            consumer.pause(partition)
            proxy.refuses = lambda _: True
            # a topic without a known id makes the whole commit use topic names
            offsets = {partition: OffsetAndMetadata(RECORDS), TopicPartition(other, 0): _ONE}
            commit = consumer.commit_async(offsets)
            until(lambda: proxy.refused)
            old = known_id(consumer, topic)
            remake(broker, topic, 5)
            until(lambda: renewed(consumer, other) and known_id(consumer, topic) not in (None, old))
            proxy.refuses = lambda _: False
            assert isinstance(commit.exception(DEADLINE_S), KafkaError)
    assert foreign.committed(broker, group, topic) < 0


def known_id(consumer: Consumer, topic: str) -> uuid.UUID | None:
    """The topic's id known to the client."""
    assert consumer._core is not None
    return consumer._core.cluster.metadata.topic_id(topic)


def renewed(consumer: Consumer, missing: str) -> bool:
    """Refresh the metadata, as a client does that misses a topic."""
    with contextlib.suppress(KafkaError):
        consumer.end_offsets([TopicPartition(missing, 0)], timeout_ms=500)
    return True


_ONE = OffsetAndMetadata(1)
