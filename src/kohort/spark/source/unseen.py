"""Queries that share a group while their sources know nothing about the sinks.

Spark's file sink silently skips a batch whose number another query has written. The source of a
query without a listener and without `checkpointLocation` would commit such a batch. So it does not
start one while its group has another member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.spark.completion.sinks import SinkError
from kohort.spark.source.exclusive import members, session_s, shown, wait_until_empty

if TYPE_CHECKING:
    from kohort.client.admin.values import MemberDescription
    from kohort.spark.options.source import SourceOptions

# A member that was just stopped may still be leaving.
LEAVING_S = 5.0


def check_first(options: SourceOptions, *, is_restart: bool) -> None:
    """Refuse to join a group that has members.

    Args:
        options: The query's options.
        is_restart: Whether the query has run before: a killed member may be its own, so it waits
            until that member's session times out.

    Raises:
        SinkError: The group has members; names them and what to do.
        KafkaError: The brokers do not tell.
    """
    timeout_s = session_s(options) if is_restart else LEAVING_S
    found = wait_until_empty(options, _others, timeout_s, "cannot share")
    if found:
        raise SinkError(_refusal(options, found))


def check_others(options: SourceOptions, member_id: str) -> None:
    """Refuse to go on while the group has other members.

    Args:
        options: The query's options.
        member_id: The query's own member, empty before it has joined.

    Raises:
        SinkError: The group has other members; names them and what to do.
        KafkaError: The brokers do not tell.
    """
    found = tuple(each for each in _others(options) if each.member_id != member_id)
    if found:
        raise SinkError(_refusal(options, found))


def _others(options: SourceOptions) -> tuple[MemberDescription, ...]:
    """Return the other members of the group, without the query's own static member."""
    instance = options.settings.get("group.instance.id")
    return tuple(
        each for each in members(options) if instance is None or each.group_instance_id != instance
    )


def _refusal(options: SourceOptions, found: tuple[MemberDescription, ...]) -> str:
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
