"""The requests that this package can encode and decode, by Kafka's API key.

There are dozens, and a client needs one in four of them. The module of a message is imported on
first use, so that a restarted member rejoins sooner.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import cast

from kohort.errors import RemoteProtocolError
from kohort.wire.codec.schema import Message

# Module and name of each API. Which of them are served is the broker's choice.
KAFKA = {
    0: "produce.Produce",
    1: "fetch.Fetch",
    2: "list_offsets.ListOffsets",
    3: "metadata.Metadata",
    8: "offsets.OffsetCommit",
    9: "offsets.OffsetFetch",
    10: "find_coordinator.FindCoordinator",
    11: "membership.JoinGroup",
    12: "membership.Heartbeat",
    13: "membership.LeaveGroup",
    14: "membership.SyncGroup",
    15: "groups.DescribeGroups",
    16: "groups.ListGroups",
    17: "sasl.SaslHandshake",
    18: "api_versions.ApiVersions",
    19: "topics.CreateTopics",
    20: "topics.DeleteTopics",
    21: "delete_records.DeleteRecords",
    22: "producer_ids.InitProducerId",
    23: "leader_epochs.OffsetForLeaderEpoch",
    24: "txn_requests.AddPartitionsToTxn",
    25: "txn_requests.AddOffsetsToTxn",
    26: "txn_requests.EndTxn",
    27: "txn_requests.WriteTxnMarkers",
    28: "txn_requests.TxnOffsetCommit",
    29: "acls.DescribeAcls",
    30: "acls.CreateAcls",
    31: "acls.DeleteAcls",
    32: "configs.DescribeConfigs",
    33: "alter_configs.AlterConfigs",
    34: "log_dirs.AlterReplicaLogDirs",
    35: "log_dirs.DescribeLogDirs",
    36: "sasl.SaslAuthenticate",
    37: "topics.CreatePartitions",
    42: "groups.DeleteGroups",
    43: "replicas.ElectLeaders",
    44: "configs.IncrementalAlterConfigs",
    45: "replicas.AlterPartitionReassignments",
    46: "replicas.ListPartitionReassignments",
    47: "offsets.OffsetDelete",
    48: "quotas.DescribeClientQuotas",
    50: "scram.DescribeUserScramCredentials",
    51: "scram.AlterUserScramCredentials",
    60: "cluster.DescribeCluster",
    61: "transactions.DescribeProducers",
    65: "transactions.DescribeTransactions",
    66: "transactions.ListTransactions",
    68: "consumer_group.ConsumerGroupHeartbeat",
    69: "consumer_group.ConsumerGroupDescribe",
    74: "config_resources.ListConfigResources",
    75: "topic_partitions.DescribeTopicPartitions",
}

# APIs that Kafka does not have, with keys that it will never reach.
PRIVATE = {
    30001: "draft.DraftJoinGroup",
    30002: "draft.DraftHeartbeat",
    30003: "client_assignors.ConsumerGroupPrepareAssignment",
    30004: "client_assignors.ConsumerGroupInstallAssignment",
}


def request_class(api_key: int) -> type[Message]:
    """Return the class of the request with this API key.

    Raises:
        RemoteProtocolError: The API key is unknown.
    """
    return _found(api_key, "Request")


def response_class(api_key: int) -> type[Message]:
    """Return the class of the response with this API key; errors as `request_class`."""
    return _found(api_key, "Response")


def pairs(api_keys: Iterable[int] = tuple(KAFKA)) -> list[tuple[type[Message], type[Message]]]:
    """Return request and response of the given APIs, by default of all APIs of Kafka."""
    return [(request_class(key), response_class(key)) for key in api_keys]


@cache
def _found(api_key: int, kind: str) -> type[Message]:
    name = KAFKA.get(api_key) or PRIVATE.get(api_key)
    if name is None:
        raise RemoteProtocolError(f"unknown API key {api_key}")
    module, stem = name.split(".")
    declared = import_module(f"kohort.wire.messages.{module}")
    return cast("type[Message]", getattr(declared, stem + kind))
