"""Offsets that are committed with transactions (KIP-447), on a real Kafka, in both versions."""

from __future__ import annotations

import pytest

from kohort import (
    AbortableTransactionError,
    Consumer,
    ConsumerGroupMetadata,
    TopicPartition,
)
from kohort.client.consumer.aio import AsyncConsumer
from kohort.errors import CommitFailedError
from tests.broker.processes import eventually
from tests.client.loops import on_a_loop
from tests.real_kafka import foreign
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.transactional import (
    PAUSE,
    new_id,
    producing,
    read,
)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_are_committed_with_the_transaction(kafka: RealKafka, protocol: str) -> None:
    bootstrap = kafka.bootstrap_servers
    source, target = foreign.new_topic(bootstrap), foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, source, [b"1", b"2"])
    group = new_id()
    place = TopicPartition(source, 0)
    with member(kafka, group, source, protocol) as consumer, producing(kafka) as producer:
        eventually(lambda: bool(consumer.poll(100)), "records come")
        producer.begin_transaction()
        producer.send_offsets_to_transaction({place: 1}, consumer.group_metadata())
        producer.abort_transaction()
        assert consumer.committed(place) == {}
        with producer.transaction():
            producer.send(target, b"done")
            producer.send_offsets_to_transaction({place: 2}, consumer.group_metadata())
        assert consumer.committed(place)[place].offset == 2
    assert read(bootstrap, target) == [b"done"]


def member(kafka: RealKafka, group: str, source: str, protocol: str = "classic") -> Consumer:
    given = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group}
    given |= {"group.protocol": protocol, "enable.auto.commit": "false"}
    return Consumer.from_config({**given, "auto.offset.reset": "earliest"}, source)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_zombies_offsets_are_refused(kafka: RealKafka, protocol: str) -> None:
    """Its generation is over: another member reads on, so the broker takes nothing of it."""
    bootstrap = kafka.bootstrap_servers
    source, target = foreign.new_topic(bootstrap), foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, source, [b"1"])
    group, place = new_id(), TopicPartition(source, 0)
    with producing(kafka) as producer:
        with member(kafka, group, source, protocol) as zombie:
            eventually(lambda: bool(zombie.poll(100)), "records come")
            old = zombie.group_metadata()
        with member(kafka, group, source, protocol) as heir:
            eventually(lambda: bool(heir.poll(100)), "another member reads on")
            producer.begin_transaction()
            producer.send(target, b"twice")
            with pytest.raises(AbortableTransactionError, match="abort") as caught:
                producer.send_offsets_to_transaction({place: 1}, old)
            assert isinstance(caught.value.__cause__, CommitFailedError)
            with pytest.raises(AbortableTransactionError):
                producer.commit_transaction()
            producer.abort_transaction()
            with producer.transaction():
                producer.send_offsets_to_transaction({place: 1}, heir.group_metadata())
    assert read(bootstrap, target) == []
    assert foreign.committed(bootstrap, group, source) == 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_was_too_slow_has_no_metadata_until_it_polls(
    kafka: RealKafka, topic: str, protocol: str
) -> None:
    """Else it would commit, as a new member, for partitions that may be another's by now."""
    foreign.produce(kafka.bootstrap_servers, topic, [b"1"])
    given = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": new_id()}
    given |= {"group.protocol": protocol, "max.poll.interval.ms": "500"}
    with Consumer.from_config({**given, "auto.offset.reset": "earliest"}, topic) as consumer:
        eventually(lambda: bool(consumer.poll(100)), "records come")
        consumer.group_metadata()
        eventually(lambda: not PAUSE.wait(0.1) and bool(consumer.why_out), "it is out")
        with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms"):
            consumer.group_metadata()


def test_who_is_no_member_has_no_metadata(kafka: RealKafka, topic: str) -> None:
    place = TopicPartition(topic, 0)
    with (
        member(kafka, new_id(), topic) as consumer,
        pytest.raises(CommitFailedError, match="not a member"),
    ):
        consumer.group_metadata()
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id="by-hand") as consumer:
        consumer.assign([place])
        assert consumer.group_metadata() == ConsumerGroupMetadata("by-hand")


@on_a_loop
async def test_an_asyncio_consumer_has_metadata_too(kafka: RealKafka) -> None:
    topic = foreign.new_topic(kafka.bootstrap_servers)
    async with AsyncConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=new_id(),
        group_instance_id="static",
    ) as consumer:
        while not consumer.assignment():
            await consumer.poll(100)
        found = consumer.group_metadata()
        assert (found.member_id, found.generation_id) == (consumer.member_id, 1)
        assert found.group_instance_id == "static"
