"""Inspects a stream application from outside, and asks members to leave.

Members come from the group's description, with their user data from the last rebalance; later task
events come from the control topic.
"""

from __future__ import annotations

import asyncio
import time

from immutables import Map
from msgspec import Struct

from kohort.client.admin.aio import AsyncAdminClient
from kohort.client.admin.values import GroupDescription, MemberDescription
from kohort.errors import MAY_BE_HIDDEN, ErrorCode, KafkaError, RemoteProtocolError
from kohort.region.settings import ClientSettings, admin_settings
from kohort.streams.assignment.metadata import (
    Claim,
    Instructions,
    decode_claim,
    decode_instructions,
)
from kohort.streams.assignment.plan import ASSIGNOR
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import MissingTopicError, StreamsError
from kohort.streams.log.control import ControlLog
from kohort.streams.log.records import AnyTaskRecord, ControlState, Failed, Leave, Started
from kohort.streams.topics import control_topic
from kohort.types import TopicPartition

_AGAIN_S = 0.5


class MemberStatus(Struct, frozen=True, kw_only=True):
    """A member of the group.

    Attributes:
        member_id: Its id.
        client_id: Its client id.
        host: The host it connects from.
        active: The partitions of the tasks that it processes; empty during a rebalance, when Kafka
            does not report them.
        processing: The tasks that it last reported as processing.
        learning: Tasks that it learns, with their lags in the last rebalance; None: unknown.
        standbys: Tasks for which it has a standby, with their lags.
        being_learned: Its tasks that another member learns.
        is_leaving: Whether it has been asked to leave the group.
        unable: Tasks that it failed to learn or follow since it joined the group; others get them.
        trouble: The last error of these tasks; empty: none.
    """

    member_id: str
    client_id: str
    host: str
    active: frozenset[TopicPartition]
    processing: frozenset[Task]
    learning: Map[Task, int | None]
    standbys: Map[Task, int | None]
    being_learned: frozenset[Task]
    is_leaving: bool
    unable: frozenset[Task] = frozenset()
    trouble: str = ""


class ApplicationStatus(Struct, frozen=True, kw_only=True):
    """A stream application.

    Attributes:
        name: Its name.
        state: State of its group, as named by Kafka's tools.
        members: Its members.
        tasks: The last record of each task.
    """

    name: str
    state: str
    members: tuple[MemberStatus, ...]
    tasks: Map[Task, AnyTaskRecord]

    @property
    def failed(self) -> list[Task]:
        """The tasks that a member has stopped because of an exception."""
        present = {each.member_id for each in self.members}
        return sorted(
            task
            for task, record in self.tasks.items()
            if isinstance(record, Failed) and record.member in present
        )

    @property
    def is_moving(self) -> bool:
        """Whether tasks are about to move."""
        return self.state != "Stable" or any(m.learning or m.is_leaving for m in self.members)


async def look(application: str, settings: ClientSettings) -> ApplicationStatus:
    """Return the current state of an application.

    Raises:
        MissingTopicError: The application does not exist.
        StreamsError: The group with this name does not belong to a stream application.
        KafkaError: The brokers cannot be reached.
    """
    async with AsyncAdminClient(**admin_settings(settings)) as admin:
        group = await _described(admin, application)
        await _check_exists(admin, group)
    async with ControlLog(application, settings) as control:
        state = await control.read_to_end()
    members = tuple(_member(each, state) for each in group.members)
    return ApplicationStatus(
        name=application, state=group.state, members=members, tasks=state.tasks
    )


async def _check_exists(admin: AsyncAdminClient, group: GroupDescription) -> None:
    application, topic = group.group_id, control_topic(group.group_id)
    if topic in await admin.list_topics():
        return
    if not group.members or group.assignor != ASSIGNOR:
        raise MissingTopicError(
            f"there is no stream application {application!r}: no topic {topic}, {MAY_BE_HIDDEN}"
        )
    raise MissingTopicError(
        f"topic {topic} was deleted while {len(group.members)} members of {application} ran"
        ". They continue, but the state of their tasks is unknown. Restart all of"
        " them: one recreates the topic, and state on disk is dropped and replayed"
    )


async def _described(admin: AsyncAdminClient, application: str) -> GroupDescription:
    """Return the group of an application; a missing group is returned without members.

    Brokers delete a group without members once its offsets have expired.
    """
    try:
        group = (await admin.describe_groups([application]))[application]
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return GroupDescription(application, "Dead", "", "", ())
    if group.members and group.assignor not in ("", ASSIGNOR):
        raise StreamsError(
            f"group {application} does not belong to a stream application: its assignor is"
            f" {group.assignor}, not {ASSIGNOR}"
        )
    return group


def _member(member: MemberDescription, state: ControlState) -> MemberStatus:
    claim, instructions = _claim(member.user_data), _instructions(member.assigned_user_data)
    lags = {**claim.standbys, **claim.dormant, **claim.learning}
    return MemberStatus(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host,
        active=member.assignment,
        processing=frozenset(
            task
            for task, record in state.tasks.items()
            if isinstance(record, Started) and record.member == member.member_id
        ),
        learning=Map({task: lags.get(task) for task in instructions.learning}),
        standbys=Map({task: lags.get(task) for task in instructions.standbys}),
        being_learned=instructions.being_learned,
        is_leaving=claim.leaving_ms is not None or member.member_id in state.leaves,
        unable=claim.unable,
        trouble=claim.trouble,
    )


def _claim(data: bytes | None) -> Claim:
    """Decode a member's claim; a rebalancing group has none."""
    try:
        return decode_claim(data or b"")
    except RemoteProtocolError:
        return Claim()


def _instructions(data: bytes | None) -> Instructions:
    try:
        return decode_instructions(data or b"")
    except RemoteProtocolError:
        return Instructions()


async def ask_to_leave(
    application: str, member: str, settings: ClientSettings, timeout_s: float
) -> str:
    """Ask a member to leave once others have learned its tasks, and wait until it has left.

    Args:
        application: Name of the application.
        member: Its member id, or its client id or static id if that is unique.
        settings: How to reach the brokers.
        timeout_s: Timeout in seconds; 0: do not wait.

    Returns:
        The member id.

    Raises:
        StreamsError: The member does not exist, or it is the only one, so that no other can learn
            its tasks; or it has not left in time and is still leaving.
        KafkaError: The brokers cannot be reached.
    """
    async with AsyncAdminClient(**admin_settings(settings)) as admin:
        group = await _described(admin, application)
        await _check_exists(admin, group)
        found = _named(group, member)
        _check_others(group, found)
        async with ControlLog(application, settings) as control:
            await control.append(Leave(member=found, at=time.time_ns() // 1_000_000))
            if timeout_s > 0:
                await _until_gone(admin, application, found, timeout_s)
                await control.forget_leave(found)
    return found


def _named(group: GroupDescription, name: str) -> str:
    found = [
        each.member_id
        for each in group.members
        if name in (each.member_id, each.client_id, each.group_instance_id)
    ]
    if name in found:
        return name
    if len(found) != 1:
        known = ", ".join(f"{each.member_id} ({each.client_id})" for each in group.members)
        what = "no member" if not found else f"{len(found)} members"
        raise StreamsError(
            f"{group.group_id} has {what} {name!r}; its members are {known or 'none'}"
        )
    return found[0]


def _check_others(group: GroupDescription, member: str) -> None:
    if len(group.members) == 1:
        raise StreamsError(
            f"member {member} is the only one of {group.group_id}: no other member can learn its"
            " tasks. Start another instance first; to stop the application, send SIGTERM to the"
            " process instead"
        )


async def _until_gone(
    admin: AsyncAdminClient, application: str, member: str, timeout_s: float
) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                group = await _described(admin, application)
                if member not in {each.member_id for each in group.members}:
                    return
                await asyncio.sleep(_AGAIN_S)
    except TimeoutError:
        raise StreamsError(
            f"member {member} of {application} has not left within {timeout_s:g} s; it is still"
            " leaving: others may still be learning its tasks (kohort streams status)"
        ) from None
