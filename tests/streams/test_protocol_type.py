"""The type of the group: `consumer`, or `stream` as the draft of KIP-429 has it."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from msgspec import structs

from kohort import AsyncProducer
from kohort.client.admin.aio import AsyncAdminClient
from kohort.errors import ConfigError, ErrorCode, KafkaError
from kohort.group.assignors import RangeAssignor
from kohort.group.member.classic.machine import ClassicMember
from kohort.group.member.config import MemberConfig
from kohort.streams.inspecting import look
from kohort.streams.runtime.holding import Role
from kohort.streams.settings import StreamSettings
from tests.streams.counting import Running, running
from tests.streams.feeding import TASKS, Case

SETTINGS = StreamSettings(commit_interval_ms=100, lag_interval_ms=100)
STREAM = structs.replace(SETTINGS, protocol_type="stream")
pytestmark = pytest.mark.timeout(240)


def test_13_the_type_of_the_draft_can_be_asked_for_and_changes_while_no_instance_runs(
    servers: str,
) -> None:
    asyncio.run(_of_both_types(Case(servers)))


async def _of_both_types(case: Case) -> None:
    application = case.application()
    for settings, other in ((STREAM, SETTINGS), (SETTINGS, STREAM)):
        async with AsyncProducer(bootstrap_servers=case.address) as producer:
            await case.send(producer, 100)
        async with running(application, case.address, settings) as one:
            await one.until(partial(_has_all, one))
            assert await _type_of(case) == settings.protocol_type
            (member,) = (await look(case.name, {"bootstrap_servers": case.address})).members
            assert member.member_id == one.instance.member_id
            assert len(member.active) == TASKS
            await _refused(case, other)
            await case.check_exact()


def _has_all(one: Running) -> bool:
    return list(one.instance.tasks.values()) == [Role.RUNNING] * TASKS


async def _type_of(case: Case) -> str:
    async with AsyncAdminClient(bootstrap_servers=case.address) as admin:
        return (await admin.describe_groups([case.name]))[case.name].protocol_type


async def _refused(case: Case, settings: StreamSettings) -> None:
    other = Running(case.application(), case.address, settings)
    with pytest.raises(KafkaError, match="can change only while it is empty") as caught:
        async with asyncio.timeout(90):
            await other.job
    assert caught.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_another_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="protocol_type = 'connect'"):
        StreamSettings(protocol_type="connect")  # type: ignore[arg-type]  # a user's mistake


def test_the_assignors_of_one_member_have_one_type() -> None:
    other = RangeAssignor()
    other.protocol_type = "stream"
    other.name = "another"  # type: ignore[misc]  # two of one name are refused before
    with pytest.raises(ConfigError, match=r"differ in protocol type: \['consumer', 'stream'\]"):
        ClassicMember(MemberConfig(group_id="g"), [RangeAssignor(), other])
