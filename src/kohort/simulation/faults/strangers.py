"""Requests from outside the group: tools, old clients, and invalid requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.group.coordinator.draft import kind as router
from kohort.group.subscription import Subscription, encode_subscription
from kohort.simulation.faults.consumer_strangers import CONSUMER_REQUESTS, Whom
from kohort.simulation.groups.ledger import GROUP
from kohort.simulation.groups.network import Pending
from kohort.values import replace
from kohort.wire.codec.schema import Message
from kohort.wire.messages.draft import DraftHeartbeatRequest, DraftJoinGroupRequest
from kohort.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

if TYPE_CHECKING:
    from kohort.simulation.groups.base import BaseNode
    from kohort.simulation.groups.world import World

OTHER = "tools"
# A group whose members are not consumers, and one whose members never stay.
WORKERS, READERS = "workers", "readers"
# A group of the draft protocol whose members never stay.
DRAFT = "drafts"


def send_stranger(world: World, kind: str, name: str) -> None:
    """Send one request to the leader, without a client.

    Args:
        world: The world.
        kind: The request, a key of one of the tables of requests.
        name: The member whose name, instance or id the request misuses.
    """
    leader = world.coordinator.leader
    client = world.members.get(name)
    if leader is None or not leader.alive or client is None:
        return
    request, version = _request(world, kind, name)
    if _claims(request, world, leader):
        return
    pending = Pending(world.engine.now, _nobody, request, version)
    connection = world.network.connect(client, leader, f"stranger-{world.tokens}")
    connection.is_open = False
    leader.receive(connection, pending)


def _claims(request: Message, world: World, leader: BaseNode) -> bool:
    """Return whether a request would give the members' group another protocol.

    The group would keep that protocol until it is deleted (D16), and lock the members out.
    """
    is_classic = isinstance(request, JoinGroupRequest) and request.group_id == GROUP
    return (
        is_classic
        and world.scenario.protocol == "draft"
        and not router.is_draft(leader.shard.session, leader.shard.log, GROUP)
    )


def _nobody(_response: Message | None) -> None:
    """Ignore the answer."""


def _request(world: World, kind: str, name: str) -> tuple[Message, int]:
    """Return a request and its version."""
    client, group = world.members[name], world.view()
    whom = Whom(
        member_id=client.machine.member_id,
        instance=client.plan.instance,
        generation=group.epoch if group is not None else 0,
        topics=tuple(sorted(client.application.topics)),
    )
    make = (REQUESTS | DRAFT_REQUESTS | CONSUMER_REQUESTS)[kind]
    return make(whom)


def _join(group: str, member_id: str, instance: str, **changes: object) -> JoinGroupRequest:
    metadata = encode_subscription(Subscription(topics=frozenset({"flights"})))
    fields: dict[str, object] = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "member_id": member_id,
        "group_instance_id": instance or None,
        "protocol_type": "consumer",
        "protocols": (
            JoinGroupRequestProtocol(name="range", metadata=metadata),
            JoinGroupRequestProtocol(name="cooperative-sticky", metadata=metadata),
        ),
        "reason": None,
    }
    return JoinGroupRequest(**{**fields, **changes})  # type: ignore[arg-type]  # the keys are its fields


def _old_join(_whom: Whom) -> tuple[Message, int]:
    return _join(GROUP, "", ""), 3


def _join_and_go(_whom: Whom) -> tuple[Message, int]:
    return _join(GROUP, "", ""), 9


def _short_session(_whom: Whom) -> tuple[Message, int]:
    return _join(GROUP, "", "", session_timeout_ms=1), 9


def _other_type(_whom: Whom) -> tuple[Message, int]:
    return _join(GROUP, "", "", protocol_type="connect"), 9


def _unknown_member(_whom: Whom) -> tuple[Message, int]:
    return _join(GROUP, "nobody", ""), 9


def _old_twin(whom: Whom) -> tuple[Message, int]:
    return _join(GROUP, "", whom.instance or "old-twin"), 5


def _fenced_join(whom: Whom) -> tuple[Message, int]:
    return _join(GROUP, "nobody", whom.instance or "nobody"), 9


def _impostor_joins(whom: Whom) -> tuple[Message, int]:
    return _join(GROUP, whom.member_id or "nobody", "impostor"), 9


def _workers_join(_whom: Whom) -> tuple[Message, int]:
    return _join(WORKERS, "", "", protocol_type="connect"), 3


def _readers_join(_whom: Whom) -> tuple[Message, int]:
    # The group waits longer for this join than for an assignment.
    return _join(READERS, "", "", session_timeout_ms=30_000), 3


def _join_other(_whom: Whom) -> tuple[Message, int]:
    return _join(OTHER, "nobody", ""), 9


def _sync_other(_whom: Whom) -> tuple[Message, int]:
    request = SyncGroupRequest(group_id=OTHER, generation_id=1, member_id="nobody", assignments=())
    return request, 4  # from version 5 on, a sync must name a protocol


def _beat_other(_whom: Whom) -> tuple[Message, int]:
    return HeartbeatRequest(group_id=OTHER, generation_id=1, member_id="nobody"), 4


def _leave_other(_whom: Whom) -> tuple[Message, int]:
    members = (MemberIdentity(member_id="nobody"),)
    return LeaveGroupRequest(group_id=OTHER, members=members), 5


def _leave_instance(whom: Whom) -> tuple[Message, int]:
    members = (MemberIdentity(member_id="", group_instance_id=whom.instance or "nobody"),)
    return LeaveGroupRequest(group_id=GROUP, members=members), 5


def _leave_old(whom: Whom) -> tuple[Message, int]:
    return LeaveGroupRequest(group_id=GROUP, member_id=whom.member_id or "nobody"), 2


def _stale_sync(whom: Whom) -> tuple[Message, int]:
    request = SyncGroupRequest(
        group_id=GROUP, generation_id=0, member_id=whom.member_id or "nobody", assignments=()
    )
    return request, 5


def _stale_beat(whom: Whom) -> tuple[Message, int]:
    return HeartbeatRequest(
        group_id=GROUP, generation_id=0, member_id=whom.member_id or "nobody"
    ), 4


def _commit(group: str, member_id: str, generation: int) -> OffsetCommitRequest:
    entry = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1_000_000, committed_metadata=""
    )
    topics = (OffsetCommitRequestTopic(name="flights", partitions=(entry,)),)
    return OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=topics,
    )


def _tool_commits(_whom: Whom) -> tuple[Message, int]:
    return _commit(OTHER, "", -1), 8


def _tool_commits_as_member(_whom: Whom) -> tuple[Message, int]:
    return _commit(OTHER, "nobody", 3), 9


_NO_GENERATION_EVER = 1_000_000


def _stale_commit(whom: Whom) -> tuple[Message, int]:
    # Not generation 0, which is the present one until the first rebalance is over.
    return _commit(GROUP, whom.member_id or "nobody", _NO_GENERATION_EVER), 8


def _commit_in_generation(whom: Whom) -> tuple[Message, int]:
    """Commit in a topic without subscribers, which a member may do."""
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    topics = (OffsetCommitRequestTopic(name="cancelled", partitions=(partition,)),)
    request = _commit(GROUP, whom.member_id or "nobody", whom.generation)
    return replace(request, topics=topics), 8


def _tool_commits_as_empty(_whom: Whom) -> tuple[Message, int]:
    return _commit(OTHER, "", 0), 9


def _delete_offset(group: str) -> OffsetDeleteRequest:
    partition = OffsetDeleteRequestPartition(partition_index=0)
    topic = OffsetDeleteRequestTopic(name="cancelled", partitions=(partition,))
    return OffsetDeleteRequest(group_id=group, topics=(topic,))


def _delete_offset_other(_whom: Whom) -> tuple[Message, int]:
    return _delete_offset(OTHER), 0


def _delete_offset_workers(_whom: Whom) -> tuple[Message, int]:
    return _delete_offset(WORKERS), 0


def _delete_offset_own(_whom: Whom) -> tuple[Message, int]:
    return _delete_offset(GROUP), 0


def _big_join(_whom: Whom) -> tuple[Message, int]:
    protocols = (JoinGroupRequestProtocol(name="range", metadata=bytes(2_000_000)),)
    return _join(GROUP, "", "", protocols=protocols), 9


def _delete(_whom: Whom) -> tuple[Message, int]:
    return DeleteGroupsRequest(groups_names=(GROUP, OTHER, WORKERS)), 2


def _describe(_whom: Whom) -> tuple[Message, int]:
    return DescribeGroupsRequest(groups=(GROUP, OTHER)), 5


REQUESTS = {
    each.__name__.strip("_"): each
    for each in (
        _old_join,
        _join_and_go,
        _short_session,
        _other_type,
        _unknown_member,
        _old_twin,
        _join_other,
        _sync_other,
        _beat_other,
        _leave_other,
        _leave_instance,
        _leave_old,
        _stale_sync,
        _stale_beat,
        _tool_commits,
        _tool_commits_as_member,
        _tool_commits_as_empty,
        _delete_offset_other,
        _delete_offset_own,
        _big_join,
        _stale_commit,
        _delete,
        _describe,
        _fenced_join,
        _impostor_joins,
        _workers_join,
        _readers_join,
        _commit_in_generation,
        _delete_offset_workers,
    )
}
# Requests that change the members of no group.
ASKING = (
    *(
        "unknown_member",
        "fenced_join",
        "impostor_joins",
        "other_type",
        "big_join",
        "short_session",
        "join_other",
    ),
    *("sync_other", "beat_other", "leave_other", "stale_sync", "stale_beat"),
    *("stale_commit", "commit_in_generation", "tool_commits", "tool_commits_as_member"),
    *("delete_offset_own", "delete_offset_other", "delete_offset_workers", "delete", "describe"),
)


# ------------------------------------------------------------------------------- the draft protocol


def _draft_join(group: str, consumer_id: str = "", **changes: object) -> tuple[Message, int]:
    fields: dict[str, object] = {
        "group_id": group,
        "consumer_host": "elsewhere",
        "session_timeout_ms": 6_000,
        "heartbeat_frequency": 3,
        "topics": ("flights",),
        "consumer_id": consumer_id,
    }
    return DraftJoinGroupRequest(**{**fields, **changes}), 0  # type: ignore[arg-type]  # the keys are its fields


def _draft_join_and_go(_whom: Whom) -> tuple[Message, int]:
    return _draft_join(GROUP)


def _draft_short_session(_whom: Whom) -> tuple[Message, int]:
    return _draft_join(GROUP, session_timeout_ms=1)


def _draft_never_beats(_whom: Whom) -> tuple[Message, int]:
    return _draft_join(GROUP, heartbeat_frequency=0)


def _draft_unknown(_whom: Whom) -> tuple[Message, int]:
    return _draft_join(GROUP, "nobody")


def _draft_other(_whom: Whom) -> tuple[Message, int]:
    return _draft_join(DRAFT)


def _draft_with_other_topics(whom: Whom) -> tuple[Message, int]:
    return _draft_join(GROUP, whom.member_id, topics=("flights", "delays"))


def _draft_asks_again(whom: Whom) -> tuple[Message, int]:
    return _draft_join(GROUP, whom.member_id, topics=whom.topics)


def _draft_beat(_whom: Whom) -> tuple[Message, int]:
    request = DraftHeartbeatRequest(group_id=DRAFT, group_generation_id=1, consumer_id="nobody")
    return request, 0


def _draft_tool_commits(_whom: Whom) -> tuple[Message, int]:
    return _commit(DRAFT, "", -1), 8


def _draft_commit(_whom: Whom) -> tuple[Message, int]:
    return _commit(DRAFT, "nobody", 1), 8


def _draft_delete_offset(_whom: Whom) -> tuple[Message, int]:
    return _delete_offset(DRAFT), 0


def _draft_delete(_whom: Whom) -> tuple[Message, int]:
    return DeleteGroupsRequest(groups_names=(DRAFT, GROUP)), 2


def _draft_classic_join(_whom: Whom) -> tuple[Message, int]:
    return _join(DRAFT, "nobody", ""), 9


DRAFT_REQUESTS = {
    each.__name__.strip("_"): each
    for each in (
        _draft_join_and_go,
        _draft_short_session,
        _draft_never_beats,
        _draft_unknown,
        _draft_other,
        _draft_with_other_topics,
        _draft_beat,
        _draft_tool_commits,
        _draft_commit,
        _draft_delete_offset,
        _draft_delete,
        _draft_classic_join,
        _draft_asks_again,
    )
}
DRAFT_ASKING = (
    *("draft_short_session", "draft_never_beats", "draft_unknown", "draft_asks_again"),
    *("draft_with_other_topics", "draft_beat", "draft_commit", "draft_tool_commits"),
    *("draft_delete_offset", "draft_delete", "draft_classic_join"),
)
