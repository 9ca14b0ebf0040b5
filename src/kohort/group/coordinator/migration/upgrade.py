"""Conversion of a classic group when the first consumer member joins (K40, K41)."""

from __future__ import annotations

import uuid
from collections.abc import Set as AbstractSet
from typing import cast

from immutables import Map

from kohort.errors import ErrorCode, RemoteProtocolError
from kohort.group.coordinator.classic import rebalance
from kohort.group.coordinator.classic.fold import STORED, StoredGroup, group_tombstone
from kohort.group.coordinator.classic.group import ClassicGroup, GroupState
from kohort.group.coordinator.classic.group import Member as ClassicMember
from kohort.group.coordinator.consumer.decision import ConsumerDecision
from kohort.group.coordinator.consumer.state import log_records
from kohort.group.coordinator.consumer.state.group import (
    ConsumerGroup,
    Member,
    MemberState,
    Owned,
    Target,
)
from kohort.group.coordinator.consumer.validate import Refused
from kohort.group.coordinator.events import (
    InitialDelayExpired,
    JoinExpired,
    PendingExpired,
    SessionExpired,
    SyncExpired,
)
from kohort.group.coordinator.migration import embedded, policy
from kohort.group.coordinator.migration.downgrade import classic_decision
from kohort.group.events import ProtocolChanged
from kohort.group.subscription import PROTOCOL_TYPE
from kohort.wire.messages.consumer_group_records import ClassicMemberMetadata, ClassicProtocol
from kohort.wire.messages.consumer_protocol import ConsumerProtocolSubscription


def begin(decision: ConsumerDecision) -> None:
    """K40: create a consumer group, new or converted from the classic group.

    An empty group can always be converted. A rebalancing group without members is not empty yet: it
    waits for a newcomer that already has an id, so the epochs continue.

    Raises:
        Refused: GROUP_ID_NOT_FOUND: the classic group must not be converted.
    """
    classic, decision.other = cast("ClassicGroup | None", decision.other), None
    decision.group = ConsumerGroup(group_id=decision.group_id)
    if classic is None or classic.state is GroupState.DEAD:
        return
    if classic.state is GroupState.EMPTY:
        _dissolve(decision, classic)
        return
    _check(decision, classic)
    members = _converted(decision, classic)
    _dissolve(decision, classic)
    _write(decision, classic, members)


def _check(decision: ConsumerDecision, classic: ClassicGroup) -> None:
    reason = None
    if not policy.allows_upgrade(decision.config):
        reason = "online upgrade is disabled"
    elif classic.protocol_type != PROTOCOL_TYPE:
        reason = "the group does not use the consumer embedded protocol"
    elif len(classic.members) > decision.config.group_consumer_max_size:
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise _refused(classic.group_id, reason)


def _refused(group_id: str, reason: str) -> Refused:
    return Refused(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group_id} to consumer group because {reason}.",
    )


def _converted(decision: ConsumerDecision, classic: ClassicGroup) -> list[Member]:
    """K41: convert the members; each keeps its last assignment, and rejoins if it changes.

    During a rebalance, that assignment belongs to an earlier generation; a member that has given it
    up reports so when it joins. A member also keeps partitions that are no longer assigned to it
    until it joins without them.
    """
    stored = STORED.of(decision.log).get(classic.group_id)
    joined = classic.sorted_members()
    try:
        said = [_subscription(classic, each) for each in joined]
        given = [_given(decision, stored, each, classic.generation) for each in joined]
    except RemoteProtocolError as error:
        reason = f"the embedded consumer protocol is malformed: {error}"
        raise _refused(classic.group_id, reason) from error
    taken = {partition for assigned in given for partition in _flat(assigned)}
    claims = [embedded.by_id(each.owned_partitions, decision.topics) for each in said]
    return [
        _member(classic, member, subscription, assigned, _still_held(claim, taken, classic))
        for member, subscription, assigned, claim in zip(joined, said, given, claims, strict=True)
    ]


def _subscription(classic: ClassicGroup, member: ClassicMember) -> ConsumerProtocolSubscription:
    # Before the first generation the group has no assignor yet.
    metadata = member.metadata(classic.protocol) or member.protocols[0].metadata
    return embedded.subscription_of(metadata)


def _given(
    decision: ConsumerDecision, stored: StoredGroup | None, member: ClassicMember, epoch: int
) -> Owned:
    data = stored.assignment_of(member.member_id) if stored else b""
    return embedded.assignment_of(data, decision.topics, epoch)


def _flat(owned: Owned) -> set[tuple[uuid.UUID, int]]:
    return {(topic_id, number) for topic_id, numbers in owned.items() for number in numbers}


def _still_held(
    claim: embedded.Partitions, taken: AbstractSet[tuple[uuid.UUID, int]], classic: ClassicGroup
) -> Owned:
    """S4: return the partitions that a member had when it last joined and that no other has now.

    A cooperative member learns from the assignment which partitions to release, and has released
    them when it rejoins (KIP-429). Until then they are not free, though no assignment has them.
    """
    held = {
        topic_id: Map(
            (number, classic.generation)
            for number in claim[topic_id]
            if (topic_id, number) not in taken
        )
        for topic_id in claim
    }
    return Map({topic_id: numbers for topic_id, numbers in held.items() if numbers})


def _member(
    classic: ClassicGroup,
    member: ClassicMember,
    subscription: ConsumerProtocolSubscription,
    assigned: Owned,
    revoking: Owned,
) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=tuple(
                ClassicProtocol(name=each.name, metadata=each.metadata) for each in member.protocols
            ),
        ),
        epoch=classic.generation,
        previous_epoch=classic.generation,
        state=MemberState.UNREVOKED_PARTITIONS if revoking else MemberState.STABLE,
        assigned=assigned,
        revoking=revoking,
    )


def _dissolve(decision: ConsumerDecision, classic: ClassicGroup) -> None:
    """Delete the classic group; members that wait for its rebalance rejoin (K41)."""
    group_id = classic.group_id
    old = classic_decision(decision, classic)
    for member_id in sorted({*classic.joining, *classic.syncing}):
        rebalance.refuse_parked(old, member_id, ErrorCode.REBALANCE_IN_PROGRESS)
    for member_id in classic.members:
        old.cancel(SessionExpired(group_id, member_id))
    for member_id in classic.pending:
        old.cancel(PendingExpired(group_id, member_id))
    old.cancel(JoinExpired(group_id))
    old.cancel(InitialDelayExpired(group_id))
    old.cancel(SyncExpired(group_id))
    decision.deadlines = old.deadlines
    decision.replies += old.replies
    if group_id in STORED.of(decision.log):
        decision.records.append(group_tombstone(group_id))


def _write(decision: ConsumerDecision, classic: ClassicGroup, members: list[Member]) -> None:
    """K41: write the group, with all members' assignments as its first target.

    If a rebalance is running, or its second round is still to come, a new target replaces it: the
    hash of no topics triggers one.
    """
    group_id, epoch = decision.group_id, classic.generation
    subscribed = {topic for member in members for topic in member.topics}
    owes_a_round = any(member.revoking for member in members)
    is_whole = classic.state is GroupState.STABLE and not owes_a_round
    metadata_hash = decision.topics.metadata_hash(subscribed) if is_whole else 0
    decision.write(log_records.member_record(group_id, member) for member in members)
    decision.write([log_records.epoch_record(group_id, epoch, metadata_hash)])
    decision.write(
        log_records.target_record(group_id, member.member_id, _target(member)) for member in members
    )
    decision.write([log_records.assignment_epoch_record(group_id, epoch, 0)])
    decision.write(log_records.current_record(group_id, member) for member in members)
    for member in members:
        decision.start_session(member.member_id)
    decision.observed.append(
        ProtocolChanged(
            group=group_id,
            now=decision.now,
            generation=epoch,
            protocol="consumer",
        )
    )


def _target(member: Member) -> Target:
    return Map({topic_id: frozenset(member.assigned[topic_id]) for topic_id in member.assigned})
