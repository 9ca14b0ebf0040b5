"""Conversion of a consumer group to a classic one, when only classic members remain (K47)."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import cast

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic import rebalance
from kohort.group.coordinator.classic.group import (
    ClassicDecision,
    ClassicGroup,
    GroupState,
    Protocol,
    choose,
    group_record,
)
from kohort.group.coordinator.classic.group import Member as ClassicMember
from kohort.group.coordinator.consumer.decision import ConsumerDecision
from kohort.group.coordinator.consumer.state import log_records
from kohort.group.coordinator.consumer.state.group import ConsumerGroup, Member
from kohort.group.coordinator.migration import embedded, policy
from kohort.group.coordinator.refusals import refuse
from kohort.group.events import Cause, ProtocolChanged
from kohort.group.subscription import PROTOCOL_TYPE
from kohort.values import replace
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.membership import JoinGroupRequest


def after_leaving(decision: ConsumerDecision, leaving: Collection[Member], cause: Cause) -> bool:
    """K47: convert the group to a classic one if only classic members remain.

    A rebalance begins at once, because the members take over the others' partitions.

    Returns:
        Whether the group was converted.
    """
    group = decision.existing
    classic = sum(member.classic is not None for member in leaving)
    staying = len(group.members) - len(leaving)
    if staying == 0 or staying != group.classic_members - classic:
        return False
    if not policy.allows_downgrade(decision.config):
        return False
    for member in leaving:
        group = group.without_member(member.member_id)
    successor = _successor(group, group.epoch)
    if not _fits(decision, successor):
        return False
    for member in leaving:
        decision.say_left(member.member_id, cause)
    first = next(iter(leaving)).member_id
    _convert(decision, successor, _assignments(decision, group, successor), cause, first)
    return True


def is_due_after_replacing(decision: ConsumerDecision, old: Member) -> bool:
    """K47: return whether only classic members remain after a classic one replaces this one."""
    group = decision.existing
    others = len(group.members) - 1
    return (
        old.classic is None
        and group.classic_members == others
        and policy.allows_downgrade(decision.config)
        and len(group.members) <= decision.config.group_max_size
    )


def after_replacing(
    decision: ConsumerDecision, joined: Member, generation: int, *, resubscribed: bool
) -> None:
    """K47: convert the group to a classic one, usually without a rebalance.

    It needs a rebalance if the new member's subscription differs from the old one's, or if a member
    has not reached its target: a classic member learns its partitions only in a rebalance. (In
    Kafka, such a member waits for the next rebalance.)
    """
    group = decision.existing
    successor = _successor(group, generation)
    settled = not resubscribed and all(
        each.is_reconciled_to(generation) for each in group.members.values()
    )
    cause = None if settled else Cause.MEMBER_REPLACED
    _convert(decision, successor, _assignments(decision, group, successor), cause, joined.member_id)


def _successor(group: ConsumerGroup, generation: int) -> ClassicGroup:
    """Return a classic group with these members, all of which are classic."""
    classic = ClassicGroup(
        group_id=group.group_id,
        state=GroupState.STABLE,
        generation=generation,
        protocol_type=PROTOCOL_TYPE,
    )
    for _, member in sorted(group.members.items()):
        classic = classic.with_member(_member(member))
    return replace(classic, protocol=choose(classic))


def _member(member: Member) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=tuple(
            Protocol(each.name, each.metadata) for each in member.classic.supported_protocols
        ),
    )


def _fits(decision: ConsumerDecision, successor: ClassicGroup) -> bool:
    """Return whether the classic group fits into one record."""
    config = decision.config
    few = len(successor.members) <= config.group_max_size
    return few and successor.size <= config.group_max_bytes


def _assignments(
    decision: ConsumerDecision, group: ConsumerGroup, successor: ClassicGroup
) -> dict[str, bytes]:
    """Return each member's partitions, in the format version that it reads.

    Kafka writes the target instead. But if the group is upgraded again before its rebalance ends, a
    partition that is not given up yet must not count as free.
    """
    return {
        member.member_id: embedded.assignment_bytes(
            _held(group.members[member.member_id]),
            decision.topics,
            member.metadata(successor.protocol),
        )
        for member in successor.members.values()
    }


def _held(member: Member) -> dict[uuid.UUID, tuple[int, ...]]:
    return {
        topic_id: (*member.assigned.get(topic_id, ()), *member.revoking.get(topic_id, ()))
        for topic_id in {*member.assigned, *member.revoking}
    }


def _convert(
    decision: ConsumerDecision,
    successor: ClassicGroup,
    assignments: dict[str, bytes],
    cause: Cause | None,
    member_id: str,
) -> None:
    """Write the classic group in place of the consumer group, and rebalance it if necessary."""
    _dissolve(decision, successor)
    new = classic_decision(decision, successor)
    # A coordinator that loads a group without a leader rebalances it.
    leader = successor.leader if cause is None else None
    record = group_record(replace(successor, leader=leader), assignments, decision.wall_ms)
    new.records.append(record)
    for member in successor.sorted_members():
        rebalance.restart_session(new, member)
    if cause is not None:
        rebalance.prepare(new, cause, member_id)
    decision.other = new.group
    decision.deadlines = new.deadlines
    decision.records += new.records
    decision.replies += new.replies
    decision.observed += new.observed


def classic_decision(decision: ConsumerDecision, group: ClassicGroup) -> ClassicDecision:
    """Return a decision on the classic group that continues the one on the consumer group."""
    return ClassicDecision(
        decision.group_id,
        decision.config,
        decision.log,
        decision.now,
        decision.wall_ms,
        decision.deadlines,
        decision.topics,
        group=group,
    )


def _dissolve(decision: ConsumerDecision, successor: ClassicGroup) -> None:
    """Delete the consumer group, and answer the requests that wait for its target."""
    group = decision.existing
    before = group.state.value
    _release(decision)
    for member_id in sorted(group.members):
        decision.cancel_timers(group.group_id, member_id)
        decision.write(log_records.member_tombstones(group.group_id, member_id))
    decision.write(group.tombstones())
    group_id, now, generation = group.group_id, decision.now, successor.generation
    decision.observed.append(
        ProtocolChanged(group=group_id, now=now, generation=generation, protocol="classic")
    )
    after = successor.state.value
    if before != after:
        decision.say_state(generation, before, after)


def _release(decision: ConsumerDecision) -> None:
    run = decision.session.targets.get(decision.group_id)
    if run is None:
        return
    targets = decision.session.targets.delete(decision.group_id)
    decision.session = replace(decision.session, targets=targets)
    if run.waiting is None:
        return
    arrived = run.waiting.arrived
    request = cast("Request[Message]", arrived.request)
    stays = isinstance(arrived.request, JoinGroupRequest)
    code = ErrorCode.REBALANCE_IN_PROGRESS if stays else ErrorCode.UNKNOWN_MEMBER_ID
    decision.reply(arrived.token, refuse(request, arrived.version, code), arrived.version)
