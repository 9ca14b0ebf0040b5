"""What a real Kafka makes of assignors that run in a member: nothing, and without harm (K60)."""

from __future__ import annotations

import asyncio
import logging
import uuid
from pathlib import Path

import confluent_kafka
import pytest

from kohort import Consumer
from kohort.broker.coordination.coordinator import partition_of
from kohort.client.config.definitions import ClientConfig
from kohort.client.net.backoff import Deadline
from kohort.client.net.cluster import Cluster
from kohort.client.net.coordinator import Coordinator
from kohort.group.events import AssignorUnsupported, GroupEvent
from kohort.types import TopicPartition
from kohort.wire.messages.client_assignors import ConsumerGroupPrepareAssignmentRequest
from kohort.wire.messages.consumer_group import (
    ClientAssignor,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
)
from tests.broker.processes import eventually
from tests.client.loops import on_a_loop
from tests.group.coordinator.consumer.assignor_dialogue import AssignorDialogue
from tests.group.coordinator.dialogue import GROUP
from tests.real_kafka import foreign
from tests.real_kafka.broker import SETTINGS, RealKafka
from tests.system.clients.local_assignor import ByRank
from tests.system.kafka.test_group_log import commit_in_a_group

ASSIGNORS = (ClientAssignor(name="mine", version=1, maximum_version=1, metadata=b"load"),)
ALL = {TopicPartition("cards", number) for number in range(3)}


async def join(kafka: RealKafka, topic: str) -> ConsumerGroupHeartbeatResponse:
    """Join a group of one's own with tagged fields that Kafka does not know."""
    cluster = Cluster(ClientConfig(bootstrap_servers=kafka.bootstrap_servers))
    try:
        group = f"tagged-{uuid.uuid4()}"
        coordinator = Coordinator(cluster, group)
        await coordinator.find()
        assert not await coordinator.serves(ConsumerGroupPrepareAssignmentRequest)
        return await coordinator.send(
            ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id=str(uuid.uuid4()),
                member_epoch=0,
                rebalance_timeout_ms=10_000,
                subscribed_topic_names=(topic,),
                topic_partitions=(),
                client_assignors=ASSIGNORS,
            )
        )
    finally:
        await cluster.close()


@on_a_loop
async def test_k60_kafka_passes_over_our_tagged_fields(real_kafka: RealKafka) -> None:
    topic = f"known-{uuid.uuid4()}"  # once it is known, there is a coordinator
    await asyncio.to_thread(foreign.create_topic, real_kafka.bootstrap_servers, topic, 1)
    answer = await join(real_kafka, "no-such-topic")
    assert answer.error_code == 0
    assert answer.member_epoch >= 1
    assert not answer.should_compute_assignment
    assert answer.assignment_metadata is None


def test_k60_our_client_says_that_it_falls_back_to_the_servers_assignor(
    real_kafka: RealKafka, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, as a warning and as a fact; it gets its partitions all the same."""
    facts: list[GroupEvent] = []
    foreign.create_topic(real_kafka.bootstrap_servers, "cards", 3)
    assignor = ByRank(1)
    with (
        caplog.at_level(logging.WARNING, "kohort.client"),
        Consumer(
            "cards",
            bootstrap_servers=real_kafka.bootstrap_servers,
            group_id=f"fallback-{uuid.uuid4()}",
            group_protocol="consumer",
            group_local_assignors=[assignor],
            event_listener=facts.append,
        ) as consumer,
    ):

        def assigned() -> bool:
            consumer.poll(timeout_ms=50)
            return consumer.assignment() == ALL

        eventually(assigned, "the only member has all partitions")
    told = [fact.assignors for fact in facts if isinstance(fact, AssignorUnsupported)]
    assert told == [("by-rank",)]
    (warning,) = [each for each in caplog.records if "by-rank" in each.getMessage()]
    assert warning.levelno == logging.WARNING
    assert not assignor.computes.is_set()
    assert assignor.told == []


def test_k60_kafka_loads_a_log_with_our_tagged_fields_in_it(tmp_path: Path) -> None:
    """What members said of their assignors, and what these said, is passed over."""
    group = AssignorDialogue()
    group.asked("a")
    group.made("a", {"a": {"t": [0, 1, 2, 3]}})
    group.heartbeat("a", 1)
    assert group.group.words
    partition = partition_of(GROUP, int(SETTINGS["offsets.topic.num.partitions"]))
    with RealKafka(tmp_path) as kafka:
        commit_in_a_group(kafka, topic="beside", group="another")
        # Kafka takes records for its own topics only from who says to be an admin client.
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "client.id": "__admin_client"}
        producer = confluent_kafka.Producer(settings)
        for key, value in group.log:
            producer.produce("__consumer_offsets", value, key, partition)
        assert producer.flush(30) == 0
        del producer
        kafka.restart()
        found = asyncio.run(described(kafka))
    assert (found.group_epoch, found.assignment_epoch) == (group.group.epoch, group.group.epoch)
    assert [(each.member_id, each.member_epoch) for each in found.members] == [("a", 2)]


async def described(kafka: RealKafka) -> DescribedConsumerGroup:
    """The group, once Kafka has loaded it."""
    cluster = Cluster(ClientConfig(bootstrap_servers=kafka.bootstrap_servers))
    try:
        answer = await Coordinator(cluster, GROUP).call(
            ConsumerGroupDescribeRequest(group_ids=(GROUP,)),
            lambda response: [each.error_code for each in response.groups],
            Deadline(30_000),
        )
        return answer.groups[0]
    finally:
        await cluster.close()
