"""Foreign transactional producers on the embedded broker: what they commit is read, once."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable, Iterator
from itertools import chain

import aiokafka
import confluent_kafka
import pytest

from kohort.broker import EmbeddedBroker
from tests.broker.processes import eventually
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.transactional import read
from tests.system.clients.group import DEADLINE_S, kafka

# aiokafka leaves connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

ROUNDS = [[b"%d-%d" % (number, at) for at in range(50)] for number in range(6)]
COMMITTED = list(chain.from_iterable(ROUNDS[::2]))


@pytest.fixture(scope="module", params=[1, 2], ids=["version-1", "version-2"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(transaction_version=request.param) as running:
        running.create_topic("input", 1)
        yield running


def by_confluent(servers: str, topic: str, group: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions(DEADLINE_S)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    for number, values in enumerate(ROUNDS):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
        producer.flush(DEADLINE_S)
        position = confluent_kafka.TopicPartition("input", 0, number + 1)
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([position], metadata, DEADLINE_S)
        if number % 2:
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
    consumer.close()


def by_kafka_python(servers: str, topic: str, group: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id=topic)
    try:
        producer.init_transactions()
        for number, values in enumerate(ROUNDS):
            producer.begin_transaction()
            for sent in [producer.send(topic, value) for value in values]:
                sent.get(DEADLINE_S)
            position = kafka.structs.OffsetAndMetadata(number + 1, "", -1)
            offsets = {kafka.TopicPartition("input", 0): position}
            producer.send_offsets_to_transaction(offsets, group)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    finally:
        producer.close()


def by_aiokafka(servers: str, topic: str, group: str) -> None:
    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=topic)
        await producer.start()
        try:
            for number, values in enumerate(ROUNDS):
                await producer.begin_transaction()
                await asyncio.gather(*[await producer.send(topic, value) for value in values])
                offsets = {aiokafka.TopicPartition("input", 0): number + 1}
                await producer.send_offsets_to_transaction(offsets, group)
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        finally:
            await producer.stop()

    asyncio.run(run())


@pytest.mark.parametrize("produce", [by_confluent, by_kafka_python, by_aiokafka])
def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    broker: EmbeddedBroker, produce: Callable[[str, str, str], None]
) -> None:
    servers, unique = broker.bootstrap_servers, uuid.uuid4().hex[:8]
    topic, group = f"topic-{unique}", f"group-{unique}"
    broker.create_topic(topic, 1)
    produce(servers, topic, group)
    assert read(servers, topic) == COMMITTED
    assert read_by_librdkafka(servers, topic) == COMMITTED
    assert sorted(read(servers, topic, **{"isolation.level": "read_uncommitted"})) == sorted(
        chain.from_iterable(ROUNDS)
    )
    asked = confluent_kafka.TopicPartition("input", 0)
    reader = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    (committed,) = reader.committed([asked], DEADLINE_S)
    reader.close()
    assert committed.offset == len(ROUNDS) - 1  # the last round was aborted


def read_by_librdkafka(servers: str, topic: str) -> list[bytes]:
    given = {"bootstrap.servers": servers, "group.id": "unused", "enable.partition.eof": True}
    reader = confluent_kafka.Consumer({**given, "isolation.level": "read_committed"})
    found: list[bytes] = []
    try:
        start = confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)
        reader.assign([start])
        while (message := reader.poll(DEADLINE_S)) is not None and message.error() is None:
            found.append(message.value() or b"")
        return found
    finally:
        reader.close()


def test_kafkas_tools_produce_list_and_end(broker: EmbeddedBroker, real_kafka: RealKafka) -> None:
    """`real_kafka` only runs the tools."""
    servers, unique = broker.bootstrap_servers, uuid.uuid4().hex[:8]
    broker.create_topic(f"perf-{unique}", 1)
    tool = "org.apache.kafka.tools.ProducerPerformance"
    options = ["--topic", f"perf-{unique}", "--num-records", "3000", "--record-size", "100"]
    options += ["--throughput", "-1", "--transactional-id", f"perf-{unique}"]
    options += ["--transaction-duration-ms", "50"]
    options += ["--producer-props", f"bootstrap.servers={servers}"]
    assert "3000 records sent" in real_kafka.run_tool(tool, *options)
    assert len(read(servers, f"perf-{unique}")) == 3000

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "transactional.id": f"open-{unique}"}
    )
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(f"perf-{unique}", b"open")
    producer.flush(DEADLINE_S)

    def tools(*arguments: str) -> str:
        command = "org.apache.kafka.tools.TransactionsCommand"
        return real_kafka.run_tool(command, "--bootstrap-server", servers, *arguments)

    assert re.search(rf"open-{unique}\s+1\s+\d+\s+Ongoing", tools("list"))
    assert "Ongoing" in tools("describe", "--transactional-id", f"open-{unique}")
    where = ["--topic", f"perf-{unique}", "--partition", "0"]
    shown = tools("describe-producers", *where)
    start = max(int(each) for each in re.findall(r"(\d+)\s*$", shown, re.MULTILINE))
    tools("abort", *where, "--start-offset", str(start))
    eventually(lambda: len(read(servers, f"perf-{unique}")) == 3000, "it is aborted")
    producer.commit_transaction(DEADLINE_S)  # its coordinator was not asked, as on Apache Kafka
    assert len(read(servers, f"perf-{unique}")) == 3000
