"""Requests of KIP-848 from outside the group: tools, ghosts, and invalid requests."""

from __future__ import annotations

from msgspec import Struct

from kohort.simulation.groups.ledger import GROUP
from kohort.wire.codec.schema import Message
from kohort.wire.messages.client_assignors import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupPrepareAssignmentRequest,
)
from kohort.wire.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)

_GHOST = "ghost"


class Whom(Struct, frozen=True, kw_only=True):
    """The member whose identity a request misuses.

    Attributes:
        member_id: The member's id, empty when it has none.
        instance: Its group instance id, empty when it is dynamic.
        generation: Generation or epoch of its group.
        topics: The topics that it subscribes to.
    """

    member_id: str
    instance: str
    generation: int
    topics: tuple[str, ...]


def _beat(group: str, epoch: int, **changes: object) -> tuple[Message, int]:
    fields: dict[str, object] = {
        "group_id": group,
        "member_id": _GHOST,
        "member_epoch": epoch,
        "rebalance_timeout_ms": 20_000,
        "subscribed_topic_names": ("flights",),
        "topic_partitions": (),
    }
    request = ConsumerGroupHeartbeatRequest(**{**fields, **changes})  # type: ignore[arg-type]  # the keys are its fields
    return request, ConsumerGroupHeartbeatRequest.max_version


def _ghost_joins(_whom: Whom) -> tuple[Message, int]:
    return _beat(GROUP, 0)


def _ghost_beats(_whom: Whom) -> tuple[Message, int]:
    return _beat(GROUP, 3, subscribed_topic_names=None, topic_partitions=None)


def _ghost_leaves(_whom: Whom) -> tuple[Message, int]:
    return _beat(GROUP, -1, subscribed_topic_names=None, topic_partitions=None)


def _no_expression(_whom: Whom) -> tuple[Message, int]:
    return _beat(GROUP, 0, subscribed_topic_names=None, subscribed_topic_regex="flights(")


def _consumer_describe(_whom: Whom) -> tuple[Message, int]:
    return ConsumerGroupDescribeRequest(group_ids=(GROUP, "tools")), 1


def _prepare(whom: Whom) -> tuple[Message, int]:
    request = ConsumerGroupPrepareAssignmentRequest(
        group_id=GROUP, member_id=whom.member_id or _GHOST, member_epoch=1
    )
    return request, 0


def _install(whom: Whom) -> tuple[Message, int]:
    request = ConsumerGroupInstallAssignmentRequest(
        group_id=GROUP,
        member_id=whom.member_id or _GHOST,
        member_epoch=1,
        group_epoch=1,
        error=0,
        members=(),
    )
    return request, 0


CONSUMER_REQUESTS = {
    each.__name__.strip("_"): each
    for each in (
        _ghost_joins,
        _ghost_beats,
        _ghost_leaves,
        _no_expression,
        _consumer_describe,
        _prepare,
        _install,
    )
}
