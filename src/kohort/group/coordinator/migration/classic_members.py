"""Members that speak the classic protocol in a consumer group (K45, K46).

They join and sync as usual, but without a leader: they get the coordinator's target, and their
generation is their member epoch. They learn of a change only by rejoining, so the answers to their
heartbeats ask for that until they have their whole target.
"""

from __future__ import annotations

from typing import TypeAlias

from kohort.errors import ErrorCode, RemoteProtocolError
from kohort.group.coordinator.classic import join as classic_join
from kohort.group.coordinator.consumer import heartbeat, membership, target, validate
from kohort.group.coordinator.consumer.decision import ConsumerDecision
from kohort.group.coordinator.consumer.state.group import ConsumerGroup, Member, MemberState
from kohort.group.coordinator.consumer.validate import Refused
from kohort.group.coordinator.events import (
    ConsumerJoinExpired,
    ConsumerSyncExpired,
    RequestArrived,
)
from kohort.group.coordinator.migration import downgrade, embedded
from kohort.group.coordinator.refusals import join_refused
from kohort.group.subscription import PROTOCOL_TYPE
from kohort.values import replace
from kohort.wire.messages.consumer_group_records import ClassicMemberMetadata, ClassicProtocol
from kohort.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

Join: TypeAlias = RequestArrived[JoinGroupRequest]
Sync: TypeAlias = RequestArrived[SyncGroupRequest]
Beat: TypeAlias = RequestArrived[HeartbeatRequest]


# ------------------------------------------------------------------------------------ JoinGroup


def join(decision: ConsumerDecision, arrived: Join) -> None:
    """K45: answer a join at once, or when its target is ready.


    Raises:
        Refused: It is turned down.
    """
    request, group = arrived.request, decision.existing
    _check(decision, arrived)
    if classic_join.requires_member_id(arrived):
        code, new_id = ErrorCode.MEMBER_ID_REQUIRED, arrived.unique_id
        refused = join_refused(request, arrived.version, code, new_id)
        decision.reply(arrived.token, refused, arrived.version)
        return
    generation = group.epoch
    old = group.static_member(request.group_instance_id) if request.group_instance_id else None
    downgrades = old is not None and downgrade.is_due_after_replacing(decision, old)
    member = _identified(decision, arrived, old)
    if member.classic is None:
        decision.cancel_timers(
            group.group_id, member.member_id
        )  # left over from the other protocol
    updated = _updated(member, arrived)
    resubscribed = heartbeat.take_note(decision, member, updated)
    if downgrades:
        if not resubscribed:
            updated = _reconciled(decision, arrived, updated, resubscribed=False)
        downgrade.after_replacing(decision, updated, generation, resubscribed=resubscribed)
        _tell(decision, arrived, updated)
    elif not heartbeat.waits_already(
        decision, arrived, updated.member_id, member.assigned, resubscribed
    ):  # otherwise the earlier join is answered, and this one replaces it
        if target.is_due(decision):
            target.start(decision, arrived, updated.member_id, member.assigned, resubscribed)
            decision.start_session(updated.member_id)
        else:
            go_on(decision, arrived, updated, resubscribed)


def go_on(decision: ConsumerDecision, arrived: Join, member: Member, resubscribed: bool) -> None:
    """K45: move the member one step, and wait for its sync."""
    member = _reconciled(decision, arrived, member, resubscribed=resubscribed)
    group_id, member_id = decision.existing.group_id, member.member_id
    decision.cancel(ConsumerJoinExpired(group_id, member_id))
    decision.start(ConsumerSyncExpired(group_id, member_id), max(member.rebalance_timeout_ms, 0))
    decision.start_session(member_id)
    _tell(decision, arrived, member)


def _check(decision: ConsumerDecision, arrived: Join) -> None:
    request, config = arrived.request, decision.config
    if not classic_join.is_session_timeout_allowed(config, request):
        raise Refused(ErrorCode.INVALID_SESSION_TIMEOUT)  # C10
    if classic_join.member_of(arrived).size > config.group_member_max_bytes:
        raise Refused(ErrorCode.MESSAGE_TOO_LARGE)
    member_id = request.member_id or arrived.unique_id
    validate.check_room(decision.existing, member_id, config.group_consumer_max_size)
    if not _is_consistent(decision.existing, request):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if _was_thrown_out(decision.existing, request):
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)


def _is_consistent(group: ConsumerGroup, request: JoinGroupRequest) -> bool:
    """K45: return whether all classic members share an assignor, as a downgrade needs."""
    known, total = group.classic_support, group.classic_members
    return request.protocol_type == PROTOCOL_TYPE and any(
        known.get(protocol.name, 0) == total for protocol in request.protocols
    )


def _was_thrown_out(group: ConsumerGroup, request: JoinGroupRequest) -> bool:
    """S1: return whether a removed member reports partitions under its old id.

    Other members may own them, so it must learn that it lost them, as in a classic group. (Kafka
    treats it as a new member and accepts its commits until it learns which partitions to release.)
    """
    if not request.member_id or request.member_id in group.members:
        return False
    is_dynamic = request.group_instance_id is None  # a static one is fenced, or unknown
    return is_dynamic and bool(_subscription(request).owned_partitions)


def _identified(decision: ConsumerDecision, arrived: Join, old: Member | None) -> Member:
    """Return the member that joins, which may be new or replace a static member."""
    request = arrived.request
    member_id = request.member_id or arrived.unique_id
    if request.group_instance_id is None or (old is None and not request.member_id):
        return decision.existing.members.get(member_id) or Member(member_id=member_id)
    if old is None or request.member_id:
        return membership.held_by(decision.existing, request.group_instance_id, member_id)
    return membership.replaced(decision, old, member_id)


def _updated(member: Member, arrived: Join) -> Member:
    """Return the member updated from the join; the same object if nothing has changed."""
    request = arrived.request
    said = classic_join.member_of(arrived)
    subscription = _subscription(request)
    updated = replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=said.rebalance_timeout_ms,
        topics=tuple(sorted(set(subscription.topics))),
        regex="",
        client_id=arrived.client_id,
        client_host=arrived.client_host,
        classic=ClassicMemberMetadata(
            session_timeout_ms=said.session_timeout_ms,
            supported_protocols=tuple(
                ClassicProtocol(name=each.name, metadata=each.metadata) for each in said.protocols
            ),
        ),
    )
    return member if updated == member else updated


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    try:
        return embedded.subscription_of(request.protocols[0].metadata)
    except RemoteProtocolError as error:
        # The same name as in Kafka.
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR) from error


def _reconciled(
    decision: ConsumerDecision, arrived: Join, member: Member, *, resubscribed: bool
) -> Member:
    """K45: return the member after its step; it releases partitions by joining without them."""
    owned = _subscription(arrived.request).owned_partitions
    said = embedded.by_id(owned, decision.topics)
    return heartbeat.reconcile(decision, member, said, resubscribed=resubscribed)


def _tell(decision: ConsumerDecision, arrived: Join, member: Member) -> None:
    response = JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=member.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=arrived.request.protocols[0].name,
        leader="",
        member_id=member.member_id,
        members=(),
    )
    decision.reply(arrived.token, response, arrived.version)


# ------------------------------------------------------------------------ SyncGroup and Heartbeat


def sync(decision: ConsumerDecision, arrived: Sync) -> None:
    """K45: answer with the member's current partitions.

    Raises:
        Refused: It is turned down.
    """
    request, group = arrived.request, decision.existing
    member, classic = _member(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    own_name = classic.supported_protocols[0].name
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (
        None,
        own_name,
    ):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    # A member that must release partitions has to learn first which ones it keeps.
    if (
        _epoch_to_reach(group) > member.epoch
        and member.state is not MemberState.UNREVOKED_PARTITIONS
    ):
        _expect_join(decision, member)
        response = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b"")
    else:
        decision.cancel(ConsumerSyncExpired(group.group_id, member.member_id))
        decision.start_session(member.member_id)
        response = SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=embedded.assignment_bytes(
                member.assigned, decision.topics, embedded.first_metadata(classic)
            ),
        )
    decision.reply(arrived.token, response, arrived.version)


def beat(decision: ConsumerDecision, arrived: Beat) -> None:
    """K45: note that a member is alive; ask it to rejoin if it has not reached its target.

    Raises:
        Refused: It is turned down.
    """
    request, group = arrived.request, decision.existing
    member, _ = _member(group, request.member_id, request.group_instance_id, request.generation_id)
    decision.start_session(member.member_id)
    code = ErrorCode.NONE
    if _has_to_join(group, member):
        _expect_join(decision, member)
        code = ErrorCode.REBALANCE_IN_PROGRESS
    decision.reply(arrived.token, HeartbeatResponse(error_code=code), arrived.version)


def _has_to_join(group: ConsumerGroup, member: Member) -> bool:
    if member.epoch < _epoch_to_reach(group) or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    # The partitions it waits for are free now.
    return all(
        number in member.assigned.get(topic_id, ()) or number not in group.owners.get(topic_id, ())
        for topic_id, numbers in group.target_of(member.member_id).items()
        for number in numbers
    )


def _epoch_to_reach(group: ConsumerGroup) -> int:
    """Return the target's epoch: before the target is computed, rejoining changes nothing.

    If there are only classic members, a join triggers the computation.
    """
    alone = group.classic_members == len(group.members)
    return group.epoch if alone else group.assignment_epoch


def _expect_join(decision: ConsumerDecision, member: Member) -> None:
    """K46: start the timeout to rejoin when the member is first asked."""
    key = ConsumerJoinExpired(decision.existing.group_id, member.member_id)
    if decision.deadlines.get(key) is None:
        decision.start(key, max(member.rebalance_timeout_ms, 0))


def _member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[Member, ClassicMemberMetadata]:
    """Return the classic member that sent the request.

    Raises:
        Refused: The sender is not a classic member, or its generation differs.
    """
    if instance_id is None:
        member = group.members.get(member_id)
    else:
        member = membership.held_by(group, instance_id, member_id)
    if member is None or member.classic is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    if member.epoch != generation:
        raise Refused(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic
