"""The client around a cooperative member: reasons, topics, assignors."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from kohort.broker import EmbeddedBroker
from kohort.client import AsyncConsumer, Consumer
from kohort.client.config.definitions import ConsumerConfig, make
from kohort.client.consumer.membership.classic import cluster_view
from kohort.client.net.metadata import ClusterMetadata, Node, PartitionMetadata, TopicMetadata
from kohort.errors import ConfigError, LocalProtocolError
from kohort.group.assignors import (
    ClusterView,
    CooperativeStickyAssignor,
    RackedClusterView,
    RangeAssignor,
    RebalanceProtocol,
    Subscription,
)
from kohort.group.assignors.interface import Assignment, GroupMetadata
from kohort.group.events import GroupEvent, MemberLeft, RebalanceStarted
from kohort.types import TopicPartition
from tests.client.cooperative_scenarios import cooperative, is_at_rest
from tests.client.group_scenarios import Notes, is_shared, member, partitions_of, poll_until
from tests.client.loops import on_a_loop
from tests.real_kafka import foreign


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path) as broker:
        yield broker


def test_l1_the_default_is_kafkas_and_each_consumer_has_its_own() -> None:
    """KAFKA-13023. One member's assignment must not be mistaken for another's."""
    first, second = ConsumerConfig().assignors(), ConsumerConfig().assignors()
    assert [each.name for each in first] == ["range", "cooperative-sticky"]
    assert not {id(each) for each in first} & {id(each) for each in second}
    java = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    (found,) = make(ConsumerConfig, {"partition_assignment_strategy": java}).assignors()
    assert isinstance(found, CooperativeStickyAssignor)


def test_l1_assignors_without_a_common_protocol_are_refused(broker: EmbeddedBroker) -> None:
    class OnlyCooperative(CooperativeStickyAssignor):
        supported_protocols = (RebalanceProtocol.COOPERATIVE,)

    with (
        Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            partition_assignment_strategy=[OnlyCooperative(), RangeAssignor()],
        ) as consumer,
        pytest.raises(ConfigError, match="no rebalance protocol is supported by all"),
    ):
        consumer.subscribe(["t"])


def test_l15_reasons_reach_the_broker(broker: EmbeddedBroker) -> None:
    """KIP-800: in JoinGroup v8 and LeaveGroup v5."""
    facts: list[GroupEvent] = []
    arrived = threading.Condition()

    def note(fact: GroupEvent) -> None:
        with arrived:
            facts.append(fact)
            arrived.notify_all()

    topic = foreign.new_topic(broker.bootstrap_servers)
    broker.subscribe(note)
    with Consumer(
        topic, bootstrap_servers=broker.bootstrap_servers, group_id="g", heartbeat_interval_ms=100
    ) as consumer:
        while not consumer.assignment():
            consumer.poll(100)
        consumer.enforce_rebalance("the reason of a person")
        while consumer.generation_id < 2:
            consumer.poll(100)
    with arrived:
        assert arrived.wait_for(lambda: any(isinstance(f, MemberLeft) for f in facts), timeout=60)
    asked = [fact.reason for fact in facts if isinstance(fact, RebalanceStarted)]
    assert "the reason of a person" in asked
    left = [fact.reason for fact in facts if isinstance(fact, MemberLeft)]
    assert left == ["the consumer is being closed"]


class Remembers(CooperativeStickyAssignor):
    """Sends user data to every member, and records the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[Assignment, GroupMetadata]] = []

    def assign_with_user_data(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        found = super().assign_with_user_data(cluster, subscriptions)
        return {member: Assignment(each.partitions, b"hello") for member, each in found.items()}

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        self.told.append((assignment, metadata))
        if len(self.told) == 1:
            raise ValueError("the assignor's error")


@on_a_loop
async def test_l5_l6_an_assignor_is_told_what_its_member_got(tmp_path: Path) -> None:
    """Its error is raised like a listener's, and changes nothing."""
    with EmbeddedBroker(tmp_path) as broker:
        topic, group = foreign.new_topic(broker.bootstrap_servers, 2), uuid.uuid4().hex
        remembers, notes = Remembers(), Notes()
        consumer = member(
            broker.bootstrap_servers, group, partition_assignment_strategy=[remembers]
        )
        consumer.subscribe([topic], listener=notes)
        with pytest.raises(ValueError, match="the assignor's error"):
            await poll_until(lambda: False, consumer)
        assert consumer.assignment() == partitions_of(topic, 2)
        assert notes.told == [("assigned", partitions_of(topic, 2))]
        ((assignment, metadata),) = remembers.told
        assert assignment == Assignment(partitions_of(topic, 2), b"hello")
        assert metadata == GroupMetadata(
            group_id=group,
            generation_id=1,
            member_id=consumer.member_id,
        )
        await consumer.close()


@on_a_loop
async def test_kip_429_a_leader_asks_anew_before_it_takes_what_it_does_not_know(
    tmp_path: Path,
) -> None:
    """Its metadata is older than the previous leader's; no partition is lost because of it."""
    with EmbeddedBroker(tmp_path) as broker:
        address, group = broker.bootstrap_servers, uuid.uuid4().hex
        topic = foreign.new_topic(address, 2)
        old = [cooperative(address, group, metadata_max_age_ms=300_000) for _ in range(2)]
        fresh = cooperative(address, group, metadata_max_age_ms=100)
        notes = [Notes() for _ in old]
        members = [fresh, *old]
        fresh.subscribe([topic])
        await poll_until(lambda: len(fresh.assignment()) == 2, fresh)
        old[0].subscribe([topic], listener=notes[0])
        await poll_until(lambda: is_shared([fresh, old[0]], topic, 2), fresh, old[0])
        old[1].subscribe([topic], listener=notes[1])
        await poll_until(lambda: is_at_rest(members), *members)
        grow(address, topic, 3)  # for the member without partitions; others do not know it
        await poll_until(lambda: is_shared(members, topic, 3), *members)
        await poll_until(lambda: is_at_rest(members), *members)
        for note in notes:
            note.told.clear()
        await fresh.close()
        await poll_until(lambda: owned(old) == partitions_of(topic, 3), *old)
        await poll_until(lambda: is_at_rest(old), *old)
        assert {what for note in notes for what, _ in note.told} == {"assigned"}
        for consumer in old:
            await consumer.close()


def grow(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)


def owned(members: list[AsyncConsumer]) -> frozenset[TopicPartition]:
    return frozenset().union(*(each.assignment() for each in members))


@on_a_loop
async def test_l8_a_static_leader_that_comes_back_watches_topics(tmp_path: Path) -> None:
    """KIP-814: it has nothing to assign, but it must notice when a topic grows."""
    with EmbeddedBroker(tmp_path) as broker:
        address, group = broker.bootstrap_servers, uuid.uuid4().hex
        topic = foreign.new_topic(address, 2)

        def start() -> AsyncConsumer:
            consumer = cooperative(
                address, group, group_instance_id="leader", metadata_max_age_ms=200
            )
            consumer.subscribe([topic])
            return consumer

        leader = start()
        await poll_until(lambda: len(leader.assignment()) == 2, leader)
        generation = leader.generation_id
        await leader.close()
        again = start()
        await poll_until(lambda: len(again.assignment()) == 2, again)
        assert again.generation_id == generation
        grow(address, topic, 3)
        await poll_until(lambda: again.assignment() == partitions_of(topic, 3), again)
        await again.close()


def test_l2_a_leader_shows_its_assignor_where_replicas_are() -> None:
    """KIP-881: if brokers report racks."""
    topics = frozenset({"t", "not there"})

    def metadata(rack: str | None) -> ClusterMetadata:
        nodes = {n: Node(n, "h", 1, rack and f"{rack}{n}") for n in range(2)}
        partitions = {n: PartitionMetadata(n, 0, replicas=(n, 5)) for n in (1, 0)}
        topic = TopicMetadata("t", uuid.UUID(int=1), partitions)
        return ClusterMetadata(nodes=nodes, topics={"t": topic, "u": topic})

    assert cluster_view(metadata(None), topics) == ClusterView({"t": 2})
    racks = {"t": [frozenset({"r0"}), frozenset({"r1"})]}
    assert cluster_view(metadata("r"), topics) == RackedClusterView({"t": 2}, racks)


@on_a_loop
async def test_l12_a_member_of_the_consumer_protocol_measures_too(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        topic = foreign.new_topic(broker.bootstrap_servers, 2)
        consumer = AsyncConsumer(
            topic,
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            group_protocol="consumer",
        )
        await poll_until(lambda: consumer.assignment() == partitions_of(topic, 2), consumer)

        def measured() -> dict[str, float]:
            return consumer.metrics()["consumer-coordinator-metrics"]

        await poll_until(lambda: measured()["rebalance-total"] >= 1, consumer)
        assert measured()["heartbeat-total"] >= 1
        assert measured()["assigned-partitions"] == 2
        assert "join-total" not in measured()
        with pytest.raises(LocalProtocolError):
            consumer.enforce_rebalance()  # L39
        await consumer.close()
