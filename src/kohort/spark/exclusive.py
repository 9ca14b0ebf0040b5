"""Queries that must be alone in their group, because their state does not move with partitions."""

from __future__ import annotations

import logging
import time
from dataclasses import fields
from typing import TYPE_CHECKING

from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.spark.options import SourceOptions
from kohort.spark.positions import GroupOffsets, exclusive_notes

if TYPE_CHECKING:
    from kohort.client.admin_values import MemberDescription

log = logging.getLogger("kohort.spark")

# A member that was killed is in its group until its session ends; a little is added to that.
SESSION_MARGIN_S = 5.0
LOOK_EVERY_S = 0.5


class ExclusiveGroupError(KohortError, RuntimeError):
    """A query that must be alone in its group is not, or another one must be."""


def members(options: SourceOptions) -> tuple[MemberDescription, ...]:
    """Return the present members of the query's group.

    Raises:
        KafkaError: The brokers do not tell.
    """
    from kohort.client.admin import AdminClient
    from kohort.client.config import AdminConfig

    assert options.group_id is not None
    known = {each.name for each in fields(AdminConfig)}
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


def check_newcomer(options: SourceOptions, group: GroupOffsets, nonce: str) -> None:
    """Refuse to join a group in which this query or another one must be alone.

    Raises:
        ExclusiveGroupError: The group has members; names them and what to do.
    """
    others = exclusive_notes(group, nonce)
    if options.exclusive or options.group_mode == "commitOnly":
        found = _wait_until_empty(options)
        if found:
            what = "exclusive is true" if options.exclusive else "groupMode is commitOnly"
            raise ExclusiveGroupError(
                f"{what}, but group {options.group_id} has members: {_names(found)}. Stop them, "
                "or give this query a group of its own"
            )
    elif others and (found := members(options)):
        raise ExclusiveGroupError(
            f"query {', '.join(others)} must be alone in group {options.group_id}, as its state "
            f"does not move to another query, and the group has members: {_names(found)}. Give "
            "this query a group of its own"
        )


def check_owner(options: SourceOptions, why: str) -> None:
    """Fail a query that must be alone and is not.

    Args:
        options: The query's options.
        why: Why it must be alone.

    Raises:
        ExclusiveGroupError: Names the others and what to do.
    """
    found = members(options)
    if len(found) > 1:
        raise ExclusiveGroupError(
            f"{why}, so query {options.operator!r} must be alone in group {options.group_id}, but "
            f"its members are {_names(found)}: each would count only its own share. Give the query "
            "a group of its own, or read with groupMode=commitOnly"
        )


def _wait_until_empty(options: SourceOptions) -> tuple[MemberDescription, ...]:
    """Wait as long as a member that was killed may still be in the group."""
    from kohort.client.config import ConsumerConfig, make_from_kafka

    session_ms = make_from_kafka(ConsumerConfig, options.settings).session_timeout_ms
    deadline = time.monotonic() + session_ms / 1000 + SESSION_MARGIN_S
    found = members(options)
    if found:
        log.warning(
            "query %s must be alone in group %s and waits for its members to leave: %s",
            options.operator, options.group_id, _names(found),
        )  # fmt: skip
    while found and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)
        found = members(options)
    return found


def _names(found: tuple[MemberDescription, ...]) -> str:
    return ", ".join(f"{each.client_id} on {each.client_host}" for each in found)
