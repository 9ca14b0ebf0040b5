"""Records of repartition topics are deleted once they are committed, and not before."""

from __future__ import annotations

import asyncio

from kohort.errors import RebalanceInProgressError
from kohort.streams import App
from kohort.streams.assignment.tasks import Task
from kohort.streams.runtime.purging import Purger
from kohort.types import TopicPartition
from tests.streams.stubs import NOWHERE, Stand, record

BETWEEN = TopicPartition("a-by-repartition", 0)


def test_what_a_rebalance_kept_from_being_committed_is_not_deleted() -> None:
    asyncio.run(_kept())


async def _kept() -> None:
    app = App("a")
    records = app.topic("in", key=str, value=str)
    records.key_by(lambda key, value: value, key=str, name="by").count(name="n")
    async with Stand(app, [BETWEEN]) as stand:
        purger = Purger(stand.owning, NOWHERE, 1)
        stand.run(Task(1, 0)).work.add(BETWEEN, [record(BETWEEN, 6)])
        await stand.process()
        stand.consumer.trouble = RebalanceInProgressError("a rebalance")
        await stand.commit()
        assert purger._due() == {}
        await stand.commit()
        assert purger._due() == {BETWEEN: 7}
