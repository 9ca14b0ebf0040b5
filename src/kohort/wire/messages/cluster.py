"""DescribeCluster: the brokers and the controller of a cluster (KIP-700)."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    message,
    since,
)


@message(api_key=60, versions=(0, 2), flexible_since=0)
class DescribeClusterRequest(Request["DescribeClusterResponse"], frozen=True, kw_only=True):
    """Ask for the brokers of the cluster."""

    include_cluster_authorized_operations: Bool
    endpoint_type: Annotated[Int8, since(1)] = 1
    include_fenced_brokers: Annotated[Bool, since(2)] = False


class DescribeClusterBroker(Struct, frozen=True, kw_only=True):
    """A broker of the cluster."""

    broker_id: Int32
    host: String
    port: Int32
    rack: NullableString = None
    is_fenced: Annotated[Bool, since(2)] = False


@message(api_key=60, versions=(0, 2), flexible_since=0)
class DescribeClusterResponse(Message, frozen=True, kw_only=True):
    """The brokers and the controller."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableString = None
    endpoint_type: Annotated[Int8, since(1)] = 1
    cluster_id: String
    controller_id: Int32 = -1
    brokers: tuple[DescribeClusterBroker, ...]
    cluster_authorized_operations: Int32 = -2147483648
