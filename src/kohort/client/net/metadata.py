"""Metadata of a cluster as values: nodes, topics, partitions and their leaders."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from msgspec import Struct, field

from kohort.errors import ErrorCode, KafkaError, with_right
from kohort.types import TopicPartition
from kohort.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

NO_LEADER = -1


class Node(Struct, frozen=True):
    """A broker.

    Attributes:
        node_id: Its node id.
        host: The host it listens on.
        port: The port it listens on.
        rack: Its rack, if it has one.
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionMetadata(Struct, frozen=True):
    """One partition.

    Attributes:
        partition: Its number.
        leader: Node id of its leader, -1 when it has none.
        leader_epoch: Epoch of the leader, -1 when not known (KIP-320).
        replicas: Node ids of all replicas.
        in_sync_replicas: Node ids of the in-sync replicas.
    """

    partition: int
    leader: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    in_sync_replicas: tuple[int, ...] = ()


class TopicMetadata(Struct, frozen=True):
    """One topic.

    Attributes:
        name: Its name.
        topic_id: Its id (KIP-516); all zero when the broker does not say.
        partitions: Its partitions by number.
        is_internal: Whether it is one of Kafka's internal topics.
        error_code: Kafka's code when the broker could not describe it, else 0.
    """

    name: str
    topic_id: uuid.UUID
    partitions: Mapping[int, PartitionMetadata]
    is_internal: bool = False
    error_code: int = 0


class ClusterMetadata(Struct, frozen=True):
    """One metadata answer of the cluster.

    Attributes:
        cluster_id: Id of the cluster, if it has one.
        controller_id: Node id of the controller, -1 when not known.
        nodes: The brokers by node id.
        topics: The topics by name.
        topic_names: The topic names by id.
    """

    cluster_id: str | None = None
    controller_id: int = -1
    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    topic_names: Mapping[uuid.UUID, str] = field(default_factory=dict)

    def topic_id(self, name: str) -> uuid.UUID | None:
        """Return the id of a topic, None when it has none or is not known."""
        topic = self.topics.get(name)
        return topic.topic_id if topic is not None and topic.topic_id.int else None

    def partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        """Return what is known about a partition."""
        topic = self.topics.get(partition.topic)
        return topic.partitions.get(partition.partition) if topic else None

    def led(self, partition: TopicPartition) -> PartitionMetadata | None:
        """Return what is known about a partition; None when its leader is not known."""
        known = self.partition(partition)
        return known if known and known.leader in self.nodes else None

    def leader(self, partition: TopicPartition) -> int | None:
        """Return the node id of a partition's leader, None when it has none or is not known."""
        known = self.led(partition)
        return known.leader if known else None


def from_response(response: MetadataResponse) -> ClusterMetadata:
    """Convert a metadata answer."""
    topics = {each.name: _topic(each) for each in response.topics if each.name is not None}
    return ClusterMetadata(
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        nodes={
            each.node_id: Node(each.node_id, each.host, each.port, each.rack)
            for each in response.brokers
        },
        topics=topics,
        topic_names={topic.topic_id: name for name, topic in topics.items() if topic.topic_id.int},
    )


def _topic(topic: MetadataResponseTopic) -> TopicMetadata:
    assert topic.name is not None
    return TopicMetadata(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions={
            each.partition_index: PartitionMetadata(
                partition=each.partition_index,
                leader=NO_LEADER if each.error_code == _NO_LEADER_CODE else each.leader_id,
                leader_epoch=each.leader_epoch,
                replicas=each.replica_nodes,
                in_sync_replicas=each.isr_nodes,
            )
            for each in topic.partitions
        },
        is_internal=topic.is_internal,
        error_code=topic.error_code,
    )


_NO_LEADER_CODE = ErrorCode.LEADER_NOT_AVAILABLE


def refusal_of_topic(
    metadata: ClusterMetadata, name: str, right: str, *, creates: bool
) -> KafkaError | None:
    """Return why a topic cannot be used for good, until an administrator or the application acts.

    Args:
        metadata: The last answer of the brokers.
        name: The topic.
        right: What an ACL must allow, by Kafka's name of the operation.
        creates: Whether the client creates topics.

    Returns:
        None when it can be used, or may be soon.
    """
    topic = metadata.topics.get(name)
    if topic is None or not topic.error_code or KafkaError(topic.error_code).retriable:
        return None
    return KafkaError(topic.error_code, with_right(topic.error_code, name, right, creates=creates))
