"""Resets a stream application: deletes its positions and its state.

The application then reads its input again from the start. Its output in other topics stays, and so
do its dead letters.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from msgspec import Struct

from kohort.client.admin.aio import AsyncAdminClient
from kohort.errors import MAY_BE_HIDDEN, ErrorCode, KafkaError
from kohort.region.settings import ClientSettings, admin_settings
from kohort.streams.errors import MissingTopicError, StreamsError
from kohort.streams.topics import control_topic
from kohort.types import TopicPartition

_CONTROL = control_topic("")
_OWN = ("-changelog", "-repartition")
_GONE_S = 60.0
_AGAIN_S = 0.1


class Reset(Struct, frozen=True, kw_only=True):
    """What a reset deletes.

    Attributes:
        application: Name of the application.
        topics: Its internal topics: changelogs, repartition topics, the control topic.
        offsets: The committed offsets of its group.
        foreign: Topics with similar names that are kept because they belong to another application
            whose name starts with this one's.
        is_done: Whether they were deleted rather than only listed.
    """

    application: str
    topics: tuple[str, ...]
    offsets: tuple[TopicPartition, ...]
    foreign: tuple[str, ...]
    is_done: bool = False


def topics_of(application: str, present: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return an application's internal topics, and topics that only look like them.

    Both "a" and "a-b" may have a topic a-b-c-changelog; it belongs to the application with the
    longer name, if that exists.

    Args:
        application: Name of the application.
        present: The existing topics.
    """
    names = sorted(present)
    others = [name.removesuffix(_CONTROL) for name in names if name.endswith(_CONTROL)]
    longer = tuple(f"{each}-" for each in others if each.startswith(f"{application}-"))
    alike = [n for n in names if n.startswith(f"{application}-") and n.endswith(_OWN)]
    foreign = [name for name in alike if name.startswith(longer)] if longer else []
    return [*(n for n in alike if n not in foreign), control_topic(application)], foreign


async def reset(application: str, settings: ClientSettings, *, execute: bool) -> Reset:
    """Delete an application's internal topics and the offsets of its group.

    Args:
        application: Name of the application.
        settings: How to reach the brokers.
        execute: Whether to delete; otherwise the topics are only listed.

    Returns:
        What was deleted, or would be.

    Raises:
        MissingTopicError: The application does not exist.
        StreamsError: It has members, or its topics still exist after a minute.
        KafkaError: The brokers cannot be reached, or refuse.
    """
    async with AsyncAdminClient(**admin_settings(settings)) as admin:
        present = await admin.list_topics()
        if control_topic(application) not in present:
            raise MissingTopicError(
                f"there is no stream application {application!r}: no topic"
                f" {control_topic(application)}, {MAY_BE_HIDDEN}"
            )
        is_group = await _check_stopped(admin, application)
        topics, foreign = topics_of(application, present)
        found = Reset(
            application=application,
            topics=tuple(topics),
            offsets=tuple(sorted(await admin.list_group_offsets(application))) if is_group else (),
            foreign=tuple(foreign),
            is_done=execute,
        )
        if execute:
            await _delete(admin, found, is_group)
    return found


async def _check_stopped(admin: AsyncAdminClient, application: str) -> bool:
    """Return whether the group exists.

    Raises:
        StreamsError: It has members.
    """
    try:
        group = (await admin.describe_groups([application]))[application]
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return False
    if group.members:
        names = ", ".join(f"{each.member_id} on {each.client_host}" for each in group.members)
        raise StreamsError(
            f"application {application} has {len(group.members)} members and is not reset: stop"
            f" them first ({names}); one that was killed counts until its session has ended"
        )
    return group.state != "Dead"


async def _delete(admin: AsyncAdminClient, found: Reset, is_group: bool) -> None:
    """Delete topics with state first: without them, an instance with offsets refuses to start.

    The control topic comes last, so that an interrupted reset can be repeated.
    """
    *others, control = found.topics
    if others:
        await admin.delete_topics(others)
        await _until_gone(admin, others)
    if is_group:
        await admin.delete_groups([found.application])
    await admin.delete_topics([control])
    await _until_gone(admin, [control])


async def _until_gone(admin: AsyncAdminClient, topics: list[str]) -> None:
    """Wait until topics are gone: brokers delete asynchronously; a new start would find them."""
    end = time.monotonic() + _GONE_S
    while left := await admin.list_topics() & frozenset(topics):
        if time.monotonic() > end:
            raise StreamsError(
                f"topics still exist {_GONE_S:g} s after they were deleted:"
                f" {', '.join(sorted(left))}. See the log of the controller, then reset again"
            )
        await asyncio.sleep(_AGAIN_S)
