"""Rule 19 on Apache Kafka: one group record that holds 1,000 instances with 10,000 tasks.

The members are connections: each sends JoinGroup and SyncGroup as a member does, with the bytes
that it would send, and the leader's plan is made from what Kafka hands to the leader. No record is
processed, and the topics need not exist.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kohort.client import AsyncAdminClient, ConfigResource
from kohort.errors import ErrorCode
from kohort.streams.assignment.plan import ASSIGNOR
from kohort.wire.group_log import encode_record
from kohort.wire.messages.group_records import GroupMetadataKey, GroupMetadataValue
from kohort.wire.messages.groups import DescribeGroupsRequest
from kohort.wire.messages.membership import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.coordinator_dialogues.client import Client, coordinators_ready
from tests.real_kafka.broker import RealKafka
from tests.streams.full_size import MEGABYTE, MEMBERS, planned, subscriptions
from tests.system.kafka.test_group_log import group_log

JOIN, SYNC, DESCRIBE = 9, 5, 5
TYPE = "consumer"
# No member sends heartbeats, so each has to live for as long as the test may take.
TIMEOUT_MS = 200_000
OFFSETS, LIMIT = ConfigResource("topic", "__consumer_offsets"), "max.message.bytes"
TOO_SMALL = 900_000


class Connected:
    """One member of a group.

    Args:
        client: Its connection.
        group: The group.
        joined: What it says.
        when_refused: Called when Kafka could not store the assignments that it sent.

    Attributes:
        client: Its connection.
        member_id: Its id, once Kafka gave it one.
        sent: The assignments that it sent, if it led.
        given: The assignment that it got.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        joined: bytes,
        when_refused: Callable[[], Awaitable[None]],
    ) -> None:
        self.client = client
        self.sent: Mapping[str, bytes] = {}
        self.given = b""
        self.member_id = ""
        self._group = group
        self._joined = joined
        self._when_refused = when_refused

    async def prepare(self) -> None:
        """Have Kafka give it an id; the group waits for all that have one (KIP-394)."""
        answer = await self._join()
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        self.member_id = answer.member_id

    async def take_part(self) -> None:
        """Join until all are in one generation, and get the assignment."""
        while True:
            answer = await self._join()
            assert answer.error_code == ErrorCode.NONE
            is_leader = answer.leader == self.member_id
            if is_leader and len(answer.members) < MEMBERS:
                continue
            if is_leader:
                ids, said = zip(*((m.member_id, m.metadata) for m in answer.members), strict=True)
                self.sent = await asyncio.to_thread(planned, ids, said)
            synced = await self._sync(answer.generation_id)
            if synced.error_code == ErrorCode.NONE:
                self.given = synced.assignment
                return
            assert synced.error_code in (
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.UNKNOWN_SERVER_ERROR,
            )
            if synced.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
                await self._when_refused()
            self.sent = {}

    async def _join(self) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=TIMEOUT_MS,
            rebalance_timeout_ms=TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type=TYPE,
            protocols=(JoinGroupRequestProtocol(name=ASSIGNOR, metadata=self._joined),),
        )
        answer = await self.client.ask(request, JOIN)
        assert isinstance(answer, JoinGroupResponse)
        return answer

    async def _sync(self, generation: int) -> SyncGroupResponse:
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=generation,
            member_id=self.member_id,
            protocol_type=TYPE,
            protocol_name=ASSIGNOR,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member, assignment=data)
                for member, data in self.sent.items()
            ),
        )
        answer = await self.client.ask(request, SYNC)
        assert isinstance(answer, SyncGroupResponse)
        return answer


def test_apache_kafka_takes_the_group_record_of_1000_instances_with_10000_tasks(
    real_kafka: RealKafka,
) -> None:
    """By its default limits; with a lower one it refuses the record, and the members go on."""
    group = f"full-size-{uuid.uuid4().hex[:10]}"
    asyncio.run(_taken(real_kafka.bootstrap_servers, group))
    stored = [
        (record.key, record.value)
        for record in group_log(real_kafka)
        if record.key == GroupMetadataKey(group=group)
        and isinstance(record.value, GroupMetadataValue)
    ]
    key, value = stored[-1]
    assert len(value.members) == MEMBERS
    assert TOO_SMALL < sum(len(each or b"") for each in encode_record(key, value)) < MEGABYTE


async def _taken(address: str, group: str) -> None:
    await coordinators_ready(address)
    async with AsyncAdminClient(bootstrap_servers=address) as admin:
        refused = asyncio.Event()

        async def raise_limit() -> None:
            refused.set()
            await admin.alter_configs({OFFSETS: {LIMIT: None}})

        await admin.alter_configs({OFFSETS: {LIMIT: str(TOO_SMALL)}})
        members = [
            Connected(Client(f"instance-{n:04}", address), group, said, raise_limit)
            for n, said in enumerate(subscriptions())
        ]
        try:
            await _check(members, group)
        finally:
            await admin.alter_configs({OFFSETS: {LIMIT: None}})
            await asyncio.gather(*(each.client.close() for each in members))
        assert refused.is_set()


async def _check(members: list[Connected], group: str) -> None:
    await asyncio.gather(*(each.prepare() for each in members))
    await asyncio.gather(*(each.take_part() for each in members))
    (sent,) = (each.sent for each in members if each.sent)
    assert {each.member_id: each.given for each in members} == sent
    described: Any = await members[0].client.ask(DescribeGroupsRequest(groups=(group,)), DESCRIBE)
    (found,) = described.groups
    assert (found.group_state, found.protocol_data) == ("Stable", ASSIGNOR)
    assert {m.member_id: m.member_assignment for m in found.members} == sent
