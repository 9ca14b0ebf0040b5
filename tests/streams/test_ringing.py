"""A release has members join at once, and only once."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import Any

import pytest
from immutables import Map

from kohort.broker import EmbeddedBroker
from kohort.streams.assignment.tasks import Task
from kohort.streams.assignor import LearnerAssignor
from kohort.streams.events import RebalanceAsked, TasksChanged
from kohort.streams.log.records import ControlState, Released
from kohort.streams.runtime.holding import Role
from kohort.streams.settings import StreamSettings
from tests.streams.counting import WAIT_S, Running, running
from tests.streams.feeding import TASKS, Case


class HeldAssignor(LearnerAssignor):
    """Says what its member has only when the test lets it."""

    gate = Event()

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        assert self.gate.wait(WAIT_S)
        return super().subscription_user_data(topics)


@pytest.mark.parametrize("by", ["a release", "what it has learned"])
def test_a_member_that_is_about_to_join_does_not_ask_for_one_more_rebalance(
    embedded: EmbeddedBroker, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all members would join twice, and the draft's owners give tasks up twice."""
    monkeypatch.setattr("kohort.streams.runtime.running.LearnerAssignor", HeldAssignor)
    HeldAssignor.gate.set()
    asyncio.run(_asked(Case(embedded.bootstrap_servers), by))


async def _asked(case: Case, by: str) -> None:
    async with running(case.application(), case.address, StreamSettings()) as one:
        await one.until(lambda: list(one.instance.tasks.values()) == [Role.RUNNING] * TASKS)
        consumer: Any = one.instance._consumer
        generation = consumer.generation_id
        HeldAssignor.gate.clear()
        consumer.enforce_rebalance("another member is new")
        if by == "a release":
            one.instance._control_heard(released(generation))
        else:
            one.instance._ask("learned 0_3")
            assert one.of(RebalanceAsked)
        assert consumer._core.membership.member.session.rejoin is None
        HeldAssignor.gate.set()
        await one.until(lambda: one.of(TasksChanged)[-1].generation > generation)


def test_a_member_joins_at_once_when_another_one_has_released_a_task(
    embedded: EmbeddedBroker,
) -> None:
    asyncio.run(_rung(Case(embedded.bootstrap_servers)))


async def _rung(case: Case) -> None:
    async with running(case.application(), case.address, StreamSettings()) as one:
        await one.until(lambda: list(one.instance.tasks.values()) == [Role.RUNNING] * TASKS)
        generation = consumer_generation(one)
        one.instance._control_heard(released(generation))
        await one.until(lambda: one.of(TasksChanged)[-1].generation > generation)


def consumer_generation(one: Running) -> int:
    consumer: Any = one.instance._consumer
    generation: int = consumer.generation_id
    return generation


def released(generation: int) -> ControlState:
    said = Released(task=Task(0, 0), generation=generation, member="another", at=0, ends=())
    return ControlState(released=Map({said.task: said}))
