"""The control topic is read to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from kohort.client.consumer.records import ConsumerRecord
from kohort.streams.assignment.tasks import Task
from kohort.streams.log.control import ControlLog
from kohort.streams.log.records import Released, encode_record, key_of
from kohort.types import TopicPartition
from tests.streams.stubs import NOWHERE, WAIT_S, cancel

PLACE = TopicPartition("a-control", 0)
RELEASES = [
    Released(task=Task(0, number), generation=1, member="m", at=1, ends=()) for number in range(5)
]


def test_a_new_owner_hears_all_that_is_in_the_control_topic() -> None:
    """Each poll returns one record."""
    asyncio.run(_read_to_the_end())


async def _read_to_the_end() -> None:
    async with ControlLog("a", NOWHERE) as control, asyncio.timeout(WAIT_S):
        read = 0

        async def poll(_timeout_ms: int) -> dict[TopicPartition, list[ConsumerRecord]]:
            nonlocal read
            await asyncio.sleep(0)
            if read == len(RELEASES):
                await asyncio.Event().wait()
            said = RELEASES[read]
            found = ConsumerRecord(*PLACE, read, 0, 0, key_of(said), encode_record(said), (), -1)
            read += 1
            return {PLACE: [found]}

        async def end_offsets(places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
            return dict.fromkeys(places, len(RELEASES))

        reader: Any = control._consumer
        reader.poll, reader.end_offsets = poll, end_offsets
        reader.positions = lambda: {PLACE: read}
        following = asyncio.create_task(control.follow())
        state = await control.caught_up()
        assert sorted(state.released) == [each.task for each in RELEASES]
        await cancel(following)
