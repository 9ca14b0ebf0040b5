"""What has an instance ask for a rebalance: releases, departures, loads that learning has left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from immutables import Map

from kohort.group.assignors.interface import ClusterView, GroupMetadata
from kohort.group.subscription import Subscription
from kohort.streams import App
from kohort.streams.assignment.member import TaskEffects, TaskMemberState, TaskSession
from kohort.streams.assignment.metadata import Claim, Lags, encode_claim
from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.assignment.tasks import SubTopology, Task, Topology
from kohort.streams.assignor import LearnerAssignor
from kohort.streams.log.records import ControlState, Released, Started
from kohort.streams.settings import StreamSettings
from tests.streams.group import tasks
from tests.streams.stubs import Stand, cancel, until

TASK = Task(0, 0)
STARTED = Started(task=TASK, generation=1, member="another", at=1, unavailable_ms=None, restored=0)
RELEASED = Released(task=TASK, generation=1, member="another", at=1, ends=())


def counting() -> App:
    """Return a program that counts."""
    app = App("a")
    app.topic("in", key=str, value=str).count(name="n")
    return app


def test_a_release_is_heard_after_other_records_of_its_generation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        "kohort.streams.runtime.running.ask_to_rebalance",
        lambda _consumer, reason: asked.append(reason),
    )
    asyncio.run(_heard())
    assert asked == ["task 0_0 was released by another"]  # once


async def _heard() -> None:
    async with Stand(counting()) as stand:
        instance: Any = stand.instance
        instance._consumer, instance._owning = stand.consumer, stand.owning
        stand.assignor._member.session = TaskSession(state=TaskMemberState.RUNNING)
        state = ControlState()
        for each in (STARTED, RELEASED, STARTED):
            state = state.with_record(each)
            instance._control_heard(state)


@pytest.mark.parametrize(("due_in_ms", "asks"), [(0, True), (3_600_000, False)])
def test_the_rebalance_that_ends_a_departure_is_asked_for_when_it_is_due(
    due_in_ms: int, asks: bool
) -> None:
    assert asyncio.run(_asked_within_a_round(due_in_ms)) == (["time is over"] if asks else [])


async def _asked_within_a_round(due_in_ms: int) -> list[str]:
    """Return what an instance asks for by the time that it looks at its lags again."""
    asked: list[str] = []
    rounds = 0
    async with Stand(counting(), settings=StreamSettings(lag_interval_ms=10)) as stand:
        now = asyncio.get_running_loop().time()
        instance: Any = stand.instance
        owning: Any = stand.owning
        assignor: Any = stand.assignor
        assignor._deadline = int(now * 1_000) + due_in_ms
        instance._ask = asked.append

        def tick() -> str:
            assignor._deadline = None
            return "time is over"

        def lags() -> Lags:
            nonlocal rounds
            rounds += 1
            return Map()

        owning.lags, assignor.tick = lags, tick
        job = asyncio.create_task(instance._look_after(owning))
        await until(lambda: rounds > 1)
        await cancel(job)
    return asked


def test_a_leader_asks_once_more_where_what_was_learned_exceeds_the_band() -> None:
    """All members of a group are gone but one, which has learned all, and one that is new."""
    topology = Topology([SubTopology(("in",))])
    learned = Claim(generation=1, learning=Map(dict.fromkeys(tasks(4), 0)))
    said = {
        name: Subscription(topics=topology.topics, generation=1, user_data=encode_claim(claim))
        for name, claim in (("a", learned), ("b", Claim(generation=1)))
    }
    heard: list[TaskEffects] = []
    assignor = LearnerAssignor(topology, LearnerSettings())
    assignor.heard = heard.append
    assignor.subscription_user_data(topology.topics)
    given = assignor.assign_with_user_data(ClusterView({"in": 4}), said)
    assert given["a"].partitions == topology.inputs(tasks(4))
    assignor.on_assignment(given["a"], GroupMetadata(group_id="g", generation_id=2, member_id="a"))
    assert [each.rejoin for each in heard] == [
        "learned tasks are granted and loads are not balanced"
    ]
