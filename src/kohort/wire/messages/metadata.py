"""Metadata: brokers, topics, partitions and their leaders."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Message,
    NullableSince,
    NullableString,
    Request,
    String,
    Struct,
    Uuid,
    between,
    message,
    since,
)


class MetadataRequestTopic(Struct, frozen=True, kw_only=True):
    """A topic, by name or by id (KIP-516)."""

    topic_id: Annotated[Uuid, since(10), IGNORABLE] = ZERO_UUID
    name: Annotated[NullableString, NullableSince(10)]


@message(api_key=3, versions=(0, 13), flexible_since=9)
class MetadataRequest(Request["MetadataResponse"], frozen=True, kw_only=True):
    """Ask for topics: null means all, an empty list none."""

    topics: Annotated[tuple[MetadataRequestTopic, ...] | None, NullableSince(1)]
    allow_auto_topic_creation: Annotated[Bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, between(8, 10)] = False
    include_topic_authorized_operations: Annotated[Bool, since(8)] = False


class MetadataResponseBroker(Struct, frozen=True, kw_only=True):
    """A broker and its address."""

    node_id: Int32
    host: String
    port: Int32
    rack: Annotated[NullableString, since(1), IGNORABLE] = None


class MetadataResponsePartition(Struct, frozen=True, kw_only=True):
    """A partition, its leader and its replicas."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Annotated[Int32, since(7), IGNORABLE] = -1
    replica_nodes: tuple[Int32, ...]
    isr_nodes: tuple[Int32, ...]
    offline_replicas: Annotated[tuple[Int32, ...], since(5), IGNORABLE] = ()


class MetadataResponseTopic(Struct, frozen=True, kw_only=True):
    """A topic and its partitions."""

    error_code: Int16
    name: Annotated[NullableString, NullableSince(12)]
    topic_id: Annotated[Uuid, since(10), IGNORABLE] = ZERO_UUID
    is_internal: Annotated[Bool, since(1), IGNORABLE] = False
    partitions: tuple[MetadataResponsePartition, ...]
    topic_authorized_operations: Annotated[Int32, since(8)] = -2147483648


@message(api_key=3, versions=(0, 13), flexible_since=9)
class MetadataResponse(Message, frozen=True, kw_only=True):
    """Brokers, and the requested topics."""

    throttle_time_ms: Annotated[Int32, since(3), IGNORABLE] = 0
    brokers: tuple[MetadataResponseBroker, ...]
    cluster_id: Annotated[NullableString, since(2), IGNORABLE] = None
    controller_id: Annotated[Int32, since(1), IGNORABLE] = -1
    topics: tuple[MetadataResponseTopic, ...]
    cluster_authorized_operations: Annotated[Int32, between(8, 10)] = -2147483648
    error_code: Annotated[Int16, since(13), IGNORABLE] = 0
