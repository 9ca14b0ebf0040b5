"""Draft groups as Kafka's tools see them: like classic ones, of a type and states of their own."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.coordinator.draft.group import Consumer, DraftGroup, DraftState
from kohort.group.coordinator.records import LogState
from kohort.group.subscription import (
    PROTOCOL_TYPE,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from kohort.wire.messages.groups import DescribedGroup, DescribedGroupMember, ListedGroup


def listed(group: DraftGroup) -> ListedGroup:
    """Return a group as ListGroups shows it."""
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=PROTOCOL_TYPE,
        group_state=_state(group),
        group_type="draft",
    )


def describe(log: LogState, group: DraftGroup) -> DescribedGroup:
    """Return a group with its consumers; what they own is shown only while it is steady."""
    steady = group.state is DraftState.STEADY
    stored = log.draft_groups.get(group.group_id)
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=_state(group),
        protocol_type=PROTOCOL_TYPE,
        protocol_data=stored.assignor if stored and steady else "",
        members=tuple(_member(log, group, each, steady) for each in group.sorted_consumers()),
    )


def _state(group: DraftGroup) -> str:
    """Tools know a group that nobody is in by this name."""
    return "Empty" if group.state is DraftState.NONE else group.state.value


def _member(
    log: LogState, group: DraftGroup, consumer: Consumer, steady: bool
) -> DescribedGroupMember:
    subscription = Subscription(topics=frozenset(consumer.topics))
    owned = log.draft_groups[group.group_id].owned if steady else {}
    return DescribedGroupMember(
        member_id=consumer.consumer_id,
        client_id=consumer.client_id,
        client_host=consumer.host,
        member_metadata=encode_subscription(subscription) if steady else b"",
        member_assignment=encode_assignment(owned[consumer.consumer_id]) if steady else b"",
    )
