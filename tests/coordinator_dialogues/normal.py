"""What of an answer Kafka leaves free. Every such rule is here, and nothing else is left out.

Ids are no freedom but names (`names.py`): the same id has to come again as the same placeholder.
"""

from __future__ import annotations

from kohort.wire.codec.schema import Struct
from kohort.wire.messages.consumer_group import Assignment as HeartbeatAssignment
from kohort.wire.messages.consumer_group import (
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedTopicPartitions,
)
from kohort.wire.messages.consumer_group import TopicPartitions as HeartbeatTopicPartitions
from kohort.wire.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    TargetTopicPartitions,
)
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.wire.messages.group_records import GroupMetadataValue, OffsetCommitValue
from kohort.wire.messages.groups import DescribedGroup, DescribeGroupsResponse, ListGroupsResponse
from kohort.wire.messages.membership import JoinGroupResponse
from kohort.wire.messages.offsets import (
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponseTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

# How long a client is asked to wait depends on quotas and load.
DROPPED = frozenset({"throttle_time_ms"})

# The wording of a message is for people; that there is one beside an error is part of the answer.
# Without an error some answers of Kafka say null, some nothing, some "NONE".
WORDING = frozenset({"error_message"})

# Where a broker listens.
ADDRESS: frozenset[tuple[type[Struct], str]] = frozenset(
    (cls, name)
    for cls in (Coordinator, FindCoordinatorResponse)
    for name in ("node_id", "host", "port")
)

# Times, and what follows from ids that a broker draws, in records of the log.
BY_CHANCE: frozenset[tuple[type[Struct], str]] = frozenset(
    {
        (OffsetCommitValue, "commit_timestamp"),
        (OffsetCommitValue, "expire_timestamp"),
        (GroupMetadataValue, "current_state_timestamp"),
        (ConsumerGroupMetadataValue, "metadata_hash"),
        (ConsumerGroupTargetAssignmentMetadataValue, "assignment_timestamp"),
        (ConsumerGroupRegularExpressionValue, "version"),
        (ConsumerGroupRegularExpressionValue, "timestamp"),
    }
)

# Lists that come out of a hash map, or from several threads: their order means nothing.
UNORDERED: frozenset[tuple[type[Struct], str]] = frozenset(
    {
        (JoinGroupResponse, "members"),
        (DescribeGroupsResponse, "groups"),
        (DescribedGroup, "members"),
        (ListGroupsResponse, "groups"),
        (OffsetCommitResponse, "topics"),
        (OffsetCommitResponseTopic, "partitions"),
        (OffsetDeleteResponse, "topics"),
        (OffsetDeleteResponseTopic, "partitions"),
        (OffsetFetchResponse, "topics"),
        (OffsetFetchResponseGroup, "topics"),
        (OffsetFetchResponseTopic, "partitions"),
        (OffsetFetchResponseTopics, "partitions"),
        (ConsumerGroupDescribeResponse, "groups"),
        (DescribedConsumerGroup, "members"),
        (DescribedAssignment, "topic_partitions"),
        (HeartbeatAssignment, "topic_partitions"),
        (GroupMetadataValue, "members"),
        (DescribedConsumerMember, "subscribed_topic_names"),
        (DescribedTopicPartitions, "partitions"),
        (HeartbeatTopicPartitions, "partitions"),
        (ConsumerGroupMemberMetadataValue, "subscribed_topic_names"),
        (ConsumerGroupTargetAssignmentMemberValue, "topic_partitions"),
        (TargetTopicPartitions, "partitions"),
        (ConsumerGroupCurrentMemberAssignmentValue, "assigned_partitions"),
        (ConsumerGroupCurrentMemberAssignmentValue, "partitions_pending_revocation"),
    }
)

# One broker holds the groups of all dialogues at once; each sees only its own in a list of all.
OTHERS: frozenset[tuple[type[Struct], str]] = frozenset({(ListGroupsResponse, "groups")})
