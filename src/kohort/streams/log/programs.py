"""Checks that all members of an application run one program, whose digest is in the control topic.

An instance compares its digest with the one in the topic when it starts. If the group has no
members, a new program replaces the old one. If two instances start at once with different programs,
the one whose record came first reads the other's and stops. Until then both are members, and if
they read different topics, the leader cannot make a plan.
"""

from __future__ import annotations

import asyncio
import time

from kohort.client.admin.aio import AsyncAdminClient
from kohort.client.admin.values import GroupDescription
from kohort.errors import ErrorCode, KafkaError
from kohort.region.settings import ClientSettings, admin_settings
from kohort.streams.errors import DifferentProgramError, StreamsError
from kohort.streams.log.control import ControlLog
from kohort.streams.log.records import ControlState, ProgramNoted
from kohort.streams.runtime.interface import Application

_HEARD_S = 30.0
"""Timeout for reading the control topic to its end."""


async def check_program(
    application: Application, control: ControlLog, clients: ClientSettings
) -> None:
    """Compare the program with the members' and write it, before `ControlLog.follow` runs.

    Raises:
        DifferentProgramError: The group has members that run a different program, or a different
            one was just written.
        KafkaError: The brokers cannot be reached.
    """
    if not application.digest:
        return
    state = await control.read_to_end()
    if state.program is not None and state.program.digest == application.digest:
        return
    refused = different(application, state)
    if refused is not None and await _has_members(application.name, clients):
        raise refused
    now_ms = time.time_ns() // 1_000_000
    await control.append(ProgramNoted(digest=application.digest, at=now_ms))
    overtaken = different(application, await control.read_to_end())
    if overtaken is not None:
        raise overtaken


async def is_of_the_group(application: Application, control: ControlLog) -> bool:
    """Whether the program is the last one in the log; `ControlLog.follow` must be running.

    False if unknown: the log has no program, or no broker answers in time.

    Raises:
        DifferentProgramError: A different program was written after it.
        KafkaError: The brokers cannot be reached.
    """
    try:
        async with asyncio.timeout(_HEARD_S):
            state = await control.caught_up()
    except TimeoutError:
        return False
    overtaken = different(application, state)
    if overtaken is not None:
        raise overtaken
    return bool(application.digest) and state.program is not None


def different(application: Application, state: ControlState) -> DifferentProgramError | None:
    """Return the error if the program differs from the one in the control topic, else None."""
    said = state.program
    if not application.digest or said is None or said.digest == application.digest:
        return None
    return DifferentProgramError(
        f"members run another program under the name {application.name} (digest {said.digest}, here"
        f" {application.digest}): steps, names, topics and serdes must be the same. Stop all of"
        " them first, or give this one another name; a member that was killed counts until its"
        " session has ended"
    )


async def check_group(admin: AsyncAdminClient, group: str) -> None:
    """Check that brokers do not assign the group's partitions: members would get no plan.

    Raises:
        StreamsError: They do, because the group has members of the consumer protocol (KIP-848).
        KafkaError: The brokers cannot be asked.
    """
    found = await _described(admin, group)
    members = [] if found is None or found.type != "consumer" else found.members
    others = [
        f"{each.client_id} on {each.client_host}" for each in members if each.type == "consumer"
    ]
    if others:
        raise StreamsError(
            f"group {group} has members of the consumer protocol (KIP-848), to which brokers assign"
            f" partitions, so no task could be given to an instance: {', '.join(others)}. Stop"
            " them, or give the application another name"
        )


async def _has_members(group: str, clients: ClientSettings) -> bool:
    async with AsyncAdminClient(**admin_settings(clients)) as admin:
        found = await _described(admin, group)
    return found is not None and bool(found.members)


async def _described(admin: AsyncAdminClient, group: str) -> GroupDescription | None:
    try:
        return (await admin.describe_groups([group]))[group]
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None
