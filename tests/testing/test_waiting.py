"""What a harness waits for, in blocking tests and in coroutines, and what it says at the end."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kohort import AsyncConsumer, Consumer, TopicPartition
from kohort.broker import EmbeddedBroker
from kohort.extras import MissingExtraError
from kohort.testing import AsyncKafkaHarness, HarnessError, KafkaHarness
from kohort.testing.spark import spark_session
from tests.broker.processes import eventually
from tests.real_kafka.broker import RealKafka

SOON_S = 0.3


@pytest.fixture(scope="module", params=["embedded", "kafka"])
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaHarness]:
    if request.param == "kafka":
        real: RealKafka = request.getfixturevalue("real_kafka")
        yield KafkaHarness(real.bootstrap_servers)
        return
    with EmbeddedBroker(tmp_path_factory.mktemp("waiting")) as broker:
        yield KafkaHarness(broker.bootstrap_servers, broker)


def test_records_are_waited_for(kafka: KafkaHarness) -> None:
    missing = "topic-that-is-not-there"
    with pytest.raises(HarnessError, match=f"not within 0.3 s: .*; there is no topic {missing}"):
        kafka.wait_for_records(missing, 1, SOON_S)
    topic = kafka.create_topic(partitions=2)
    with pytest.raises(HarnessError, match="has 1 records; "):
        kafka.wait_for_records(topic, 1, SOON_S)
    later = threading.Timer(0.1, kafka.produce, [topic, b"one", b"two"])
    later.start()
    try:
        found = kafka.wait_for_records(topic, 2)
    finally:
        later.join()
    assert sorted(record.value or b"" for record in found) == [b"one", b"two"]
    with pytest.raises(HarnessError, match=r"; it has (0|2, the last is b'(one|two)')$"):
        kafka.wait_for_records(topic, 3, SOON_S)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_who_owns_what_and_how_far_it_is_behind(kafka: KafkaHarness, protocol: str) -> None:
    topic = kafka.create_topic(partitions=2)
    places = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    assert (kafka.owners(topic), kafka.lag(topic)) == ({}, {})
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": topic,
        "group.protocol": protocol,
        "client.id": "service",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    with Consumer.from_config(settings) as consumer:
        consumer.subscribe([topic])
        eventually(lambda: bool(consumer.poll(50) or consumer.assignment()), "partitions")
        owners = kafka.owners(topic)
        assert owners.keys() == places
        assert {each.client_id for each in owners.values()} == {"service"}
        kafka.produce(topic, b"one", b"two", b"three", key=b"in one partition")
        assert sorted(kafka.lag(topic, topic).values()) == [0, 3]
        with pytest.raises(HarnessError, match=rf"all of {topic}; it is behind by 3 in {topic}-\d"):
            kafka.wait_for_no_lag(topic, topic, timeout_s=SOON_S)
        eventually(lambda: bool(consumer.poll(50)), "records")
        consumer.commit()
        kafka.wait_for_no_lag(topic, topic)
        assert set(kafka.lag(topic).values()) == {0}
    with pytest.raises(HarnessError, match="name at least one topic"):
        kafka.wait_for_no_lag(topic)


def test_a_group_that_does_not_come_is_told(kafka: KafkaHarness) -> None:
    with pytest.raises(HarnessError, match="is stable with 2 members; it does not exist"):
        kafka.wait_for_members("without-members", 2, SOON_S)
    with pytest.raises(HarnessError, match=r"has committed {'t': 1}; it has committed {}"):
        kafka.wait_for_commit("without-members", {"t": 1}, SOON_S)


def test_a_group_that_has_lost_its_members_is_waited_for(kafka: KafkaHarness) -> None:
    topic = kafka.create_topic()
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic}
    with Consumer.from_config(settings) as consumer:
        consumer.subscribe([topic])
        eventually(lambda: bool(consumer.poll(50) or consumer.assignment()), "partitions")
        consumer.commit({TopicPartition(topic, 0): 0})
        with pytest.raises(HarnessError, match="has 0 members; Stable with 1 members"):
            kafka.wait_for_members(topic, 0, SOON_S)
    assert kafka.wait_for_members(topic, 0).state == "Empty"


WAITS: dict[str, Callable[[KafkaHarness], object]] = {
    "OffsetFetch": lambda kafka: kafka.wait_for_commit("group", {"topic": 1}, SOON_S),
    "ListOffsets": lambda kafka: kafka.wait_for_no_lag("group", "topic", timeout_s=SOON_S),
    "ConsumerGroupDescribe": lambda kafka: kafka.wait_for_members("group", 1, SOON_S),
    "Metadata": lambda kafka: kafka.wait_for_records("topic", 1, SOON_S),
}


@pytest.mark.parametrize("api", WAITS)
def test_a_broker_that_does_not_answer_keeps_no_wait_beyond_its_end(
    api: str, tmp_path: Path
) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("topic")
        kafka = KafkaHarness(broker.bootstrap_servers, broker)
        deaf = kafka.fault("silence", api=api, client_id="kohort-harness", times=0)
        with deaf, pytest.raises(HarnessError, match=r"^not within 0\.3 s: .*last look failed: "):
            WAITS[api](kafka)


def test_coroutines_wait_while_their_service_runs_on(kafka: KafkaHarness) -> None:
    asyncio.run(in_a_loop(AsyncKafkaHarness(kafka)))


async def in_a_loop(kafka: AsyncKafkaHarness) -> None:
    topic = await kafka.create_topic()

    async def serve() -> None:
        async with AsyncConsumer(
            topic,
            bootstrap_servers=kafka.bootstrap_servers,
            group_id=topic,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,
        ) as consumer:
            async for _ in consumer:
                pass

    service = asyncio.create_task(serve())
    await kafka.wait_for_members(topic, 1)
    assert len(await kafka.owners(topic)) == 1
    await kafka.produce(topic, b"one", b"two")
    await kafka.wait_for_no_lag(topic, topic)
    await kafka.wait_for_commit(topic, {topic: 2})
    assert await kafka.committed(topic) == {TopicPartition(topic, 0): 2}
    assert await kafka.lag(topic) == {TopicPartition(topic, 0): 0}
    assert [each.value for each in await kafka.wait_for_records(topic, 2)] == [b"one", b"two"]
    assert len(await kafka.records(topic)) == 2
    await kafka.expire_member(topic)
    await kafka.wait_for_members(topic, 1)
    service.cancel()
    with pytest.raises(asyncio.CancelledError):
        await service
    await kafka.delete_group(topic)
    await kafka.delete_topic(topic)


def test_a_coroutine_that_is_cancelled_waits_no_longer(kafka: KafkaHarness) -> None:
    """The loop ends when its threads have, so this would take an hour."""
    waiting = AsyncKafkaHarness(kafka).wait_for_members("without-members", 1, 3_600)

    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waiting, SOON_S)

    asyncio.run(cancelled())


def test_a_session_of_spark_needs_pyspark_and_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(HarnessError, match="kohort_spark needs Java 17"), spark_session():
        pass
    monkeypatch.setattr("kohort.extras.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"kohort_spark needs pyspark.*kohort\[spark\]"):
        spark_session().__enter__()
