"""Queries that must be alone in their group.

The state of some queries does not move with partitions. The sources of others know nothing about
their sinks: Spark's file sink silently skips a batch whose number another query has written, and
the source of a query without a listener and without `checkpointLocation` would commit such a batch.
So it does not start one while its group has another member.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.spark.checkpoint.manifest import Manifest
from kohort.spark.completion.sinks import SinkError
from kohort.spark.options.source import SourceOptions
from kohort.spark.source.group_offsets import GroupOffsets, Note, exclusive_notes, foreign_notes
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.client.admin.values import MemberDescription

log = logging.getLogger("kohort.spark")

# A killed member stays in its group until its session times out; this margin is added to that.
SESSION_MARGIN_S = 5.0
LOOK_EVERY_S = 0.5
# A member that was just stopped may still be leaving.
LEAVING_S = 5.0


class ExclusiveGroupError(KohortError, RuntimeError):
    """A query that must be alone in its group is not, or another query must be."""


def members(options: SourceOptions) -> tuple[MemberDescription, ...]:
    """Return the current members of the query's group.

    Raises:
        KafkaError: The brokers do not answer.
    """
    from kohort.client.admin.api import AdminClient
    from kohort.client.config.definitions import AdminConfig

    assert options.group_id is not None
    known = AdminConfig.__struct_fields__
    settings = {k: v for k, v in options.settings.items() if k.replace(".", "_") in known}
    with AdminClient.from_config(
        {**settings, "bootstrap.servers": options.bootstrap_servers}
    ) as admin:
        try:
            return admin.describe_groups([options.group_id])[options.group_id].members
        except KafkaError as error:
            if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
                return ()
            raise


def check_newcomer(
    options: SourceOptions, group: GroupOffsets, nonce: str, checkpoint: Manifest
) -> None:
    """Refuse to join a non-empty group in which this query or another one must be alone.

    Args:
        options: The query's options.
        group: The group's committed offsets.
        nonce: Identifies the query's checkpoint.
        checkpoint: Where the query's last batch ended; empty for a new query.

    Raises:
        ExclusiveGroupError: The group has members; the message names them and the remedy.
    """
    if options.group_mode == "commitOnly" and options.positions is None:
        _refuse_other_checkpoints(options, group, nonce, checkpoint)
    if options.exclusive or options.group_mode == "commitOnly":
        found = wait_until_empty(options, members, session_s(options), "must be alone in")
        if found:
            what = "exclusive is true" if options.exclusive else "groupMode is commitOnly"
            raise ExclusiveGroupError(
                f"{what}, but group {options.group_id} has members: {shown(found)}. Stop them, "
                "or give this query a group of its own"
            )
        return
    alone = set(exclusive_notes(group, nonce))
    found = members(options) if alone else ()
    # A member's client id is its query's name; a note may come from a query that ended long ago.
    others = sorted(alone & {each.client_id for each in found})
    if others:
        raise ExclusiveGroupError(
            f"query {', '.join(others)} must be alone in group {options.group_id}, as its state "
            f"does not move to another query, and the group has members: {shown(found)}. Give "
            "this query a group of its own"
        )


def _refuse_other_checkpoints(
    options: SourceOptions, group: GroupOffsets, nonce: str, checkpoint: Manifest
) -> None:
    others = {
        note.operator
        for place, note in foreign_notes(group, nonce).items()
        if _has_gone_on(place, group.offsets[place], note, checkpoint)
    }
    if others:
        raise ExclusiveGroupError(
            f"query {', '.join(sorted(others))} has committed to group {options.group_id} with "
            "another checkpoint since this query ran, and groupMode=commitOnly reads everything "
            "alone: each would skip what the other has read. Give each query a group of its own. "
            "If no other query runs, set positions=checkpoint to continue where this one ends "
            "(at the beginning of partitions that it does not know), or positions=group to "
            "continue at the group's offsets"
        )


def _has_gone_on(place: TopicPartition, offset: int, note: Note, checkpoint: Manifest) -> bool:
    """Whether another query has read records that this one, which must read everything, has not."""
    if place in checkpoint.ranges:
        return offset > checkpoint.ranges[place][1]
    # A partition that existed before may have been read by another member while this query was a
    # member. A partition added since could not be shared.
    topic = checkpoint.topics.get(place.topic)
    return topic is not None and place.partition >= topic.count and note.batch > 0


def check_owner(options: SourceOptions, why: str) -> None:
    """Stop a query that must be alone but is not.

    Args:
        options: The query's options.
        why: Why it must be alone.

    Raises:
        ExclusiveGroupError: The query is not alone; the message names the others and the remedy.
    """
    found = members(options)
    if len(found) > 1:
        raise ExclusiveGroupError(
            f"{why}, so query {options.operator!r} must be alone in group {options.group_id}, but "
            f"its members are {shown(found)}: each would count only its own share. Give the query "
            "a group of its own, or read with groupMode=commitOnly"
        )


def session_s(options: SourceOptions) -> float:
    """Return how long a killed member may stay in the group, in seconds.

    Args:
        options: The query's options.
    """
    from kohort.client.config.definitions import ConsumerConfig, make_from_kafka

    session_ms = make_from_kafka(ConsumerConfig, options.settings).session_timeout_ms
    return session_ms / 1000 + SESSION_MARGIN_S


def wait_until_empty(
    options: SourceOptions,
    look: Callable[[SourceOptions], tuple[MemberDescription, ...]],
    timeout_s: float,
    why: str,
) -> tuple[MemberDescription, ...]:
    """Wait until the group has no members; return those that remain.

    Args:
        options: The query's options.
        look: Returns the members to wait for.
        timeout_s: Timeout in seconds.
        why: The query's relation to the group, for the log: `must be alone in`.

    Raises:
        KafkaError: The brokers do not answer.
    """
    deadline = time.monotonic() + timeout_s
    found = look(options)
    if found:
        log.warning(
            "query %s %s group %s and waits for its members to leave: %s",
            options.operator, why, options.group_id, shown(found),
        )  # fmt: skip
    while found and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)
        found = look(options)
    return found


def shown(found: tuple[MemberDescription, ...]) -> str:
    """Return a readable list of members."""
    return ", ".join(f"{each.client_id} on {each.client_host}" for each in found)


def check_no_members(options: SourceOptions, *, is_restart: bool) -> None:
    """Refuse to join a group that has members.

    Args:
        options: The query's options.
        is_restart: Whether the query has run before: a killed member may be its own, so it waits
            until that member's session times out.

    Raises:
        SinkError: The group has members; the message names them and the remedy.
        KafkaError: The brokers do not answer.
    """
    timeout_s = session_s(options) if is_restart else LEAVING_S
    found = wait_until_empty(options, _other_members, timeout_s, "cannot share")
    if found:
        raise SinkError(_unknown_sink(options, found))


def check_no_others(options: SourceOptions, member_id: str) -> None:
    """Refuse to continue while the group has other members.

    Args:
        options: The query's options.
        member_id: The query's own member; empty before it has joined.

    Raises:
        SinkError: The group has other members; the message names them and the remedy.
        KafkaError: The brokers do not answer.
    """
    found = tuple(each for each in _other_members(options) if each.member_id != member_id)
    if found:
        raise SinkError(_unknown_sink(options, found))


def _other_members(options: SourceOptions) -> tuple[MemberDescription, ...]:
    """Return the other members of the group, without the query's own static member."""
    instance = options.settings.get("group.instance.id")
    return tuple(
        each for each in members(options) if instance is None or each.group_instance_id != instance
    )


def _unknown_sink(options: SourceOptions, found: tuple[MemberDescription, ...]) -> str:
    return (
        f"query {options.operator} would share group {options.group_id} with {shown(found)}, and "
        "its source cannot tell what its sink does: Spark's file sink skips every batch whose "
        "number another query has written to its directory, and the records would be lost. Call "
        "kohort.spark.install(spark) before the query starts, or write with kohort.spark.append, "
        "which does. On Spark Connect, in SQL and in pipelines set the source's option "
        "checkpointLocation to the query's own, and give each query a directory of its own. Or "
        "give the query a group of its own. A member whose process was killed leaves the group "
        "after kafka.session.timeout.ms"
    )
