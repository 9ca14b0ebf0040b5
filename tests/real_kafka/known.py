"""Wait until a broker's group coordinator knows new topics.

Kafka tells its clients of a topic a moment before its group coordinator. A member of the consumer
protocol that joins in between is first given nothing, and its partitions an epoch later.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection

from kohort.errors import ErrorCode
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.groups import DeleteGroupsRequest
from tests.broker.peer import Peer
from tests.broker.processes import eventually

JOIN, LEAVE = 0, -1
STARTING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def until_coordinator_knows(bootstrap: str, topics: Collection[str]) -> None:
    """Join throw-away groups until one is given partitions of every topic."""
    with Peer(bootstrap) as peer:
        eventually(lambda: _is_known(peer, tuple(topics)), "a coordinator that knows the topics")


def _is_known(peer: Peer, topics: tuple[str, ...]) -> bool:
    """A group of its own each time: one that waits for its next assignment shows nothing."""
    group = f"probe-{uuid.uuid4().hex}"
    peer.ask(FindCoordinatorRequest(coordinator_keys=(group,)), 4)
    join = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=uuid.uuid4().hex,
        member_epoch=JOIN,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=topics,
        topic_partitions=(),
    )
    answer = peer.ask(join, 1)
    if answer.error_code in STARTING:
        return False
    assert answer.error_code == 0, answer
    peer.ask(
        ConsumerGroupHeartbeatRequest(group_id=group, member_id=join.member_id, member_epoch=LEAVE),
        1,
    )
    peer.ask(DeleteGroupsRequest(groups_names=(group,)), 2)
    given = answer.assignment.topic_partitions if answer.assignment else ()
    return len(given) == len(topics)
