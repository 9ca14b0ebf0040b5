"""Instances with workers: tasks are shared out evenly among the workers of all members."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from kohort.broker import EmbeddedBroker
from kohort.errors import ConfigError, RemoteProtocolError
from kohort.streams.assignment.metadata import WORKERS_MAX, Claim, decode_claim, encode_claim
from kohort.streams.assignment.refiner import refine
from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.assignment.situation import Current, Leaving, Readiness, Situation, Target
from kohort.streams.assignment.target import assign, band
from kohort.streams.runtime.holding import Role
from kohort.streams.settings import StreamSettings
from tests.streams.counting import Running, running
from tests.streams.feeding import TASKS, Case
from tests.streams.group import tasks

EXACT = LearnerSettings(stream_imbalance_percentage=0, max_warmup_learners=None)
weights = st.lists(st.integers(1, 7), min_size=1, max_size=6)


def situation(workers: list[int], count: int, current: Current | None = None) -> Situation:
    names = {f"m{number}": own for number, own in enumerate(workers)}
    return Situation(
        tasks=tuple(tasks(count)),
        members=tuple(sorted(names)),
        workers=names,
        current=current or Current(),
    )


def test_a_member_with_twice_the_workers_gets_twice_the_tasks() -> None:
    target = assign(situation([1, 2, 1], 8), EXACT)
    assert Counter(target.active.values()) == {"m0": 2, "m1": 4, "m2": 2}


@given(weights, st.integers(0, 30), st.sampled_from([0.0, 0.2]), st.data())
def test_every_member_gets_what_its_workers_may_have_and_then_nothing_moves(
    workers: list[int], count: int, percentage: float, data: st.DataObject
) -> None:
    agreed = structs.replace(EXACT, stream_imbalance_percentage=percentage)
    names = [f"m{number}" for number in range(len(workers))]
    before = {task: data.draw(st.sampled_from([*names, ""])) for task in tasks(count)}
    owner = {task: name for task, name in before.items() if name}
    found = assign(situation(workers, count, Current(owner=owner)), agreed).active
    assert sorted(found) == tasks(count)
    loads = Counter(found.values())
    for name, own in zip(names, workers, strict=True):
        low, high = band(count, sum(workers), percentage, own)
        assert low <= loads[name] <= high
    assert assign(situation(workers, count, Current(owner=found)), agreed).active == found


def test_with_a_budget_the_heaviest_for_its_workers_comes_first() -> None:
    every = tasks(5)
    owner = dict(zip(every, ["a", "a", "a", "b", "b"], strict=True))
    goal = {**owner, every[0]: "c", every[3]: "c"}
    target = Target(goal, workers={"a": 3})
    found = refine(target, Current(owner=owner), Readiness(), Leaving(), 1)
    assert found.learners == {every[3]: "c"}


def test_workers_travel_in_the_claim_and_an_older_claim_has_one() -> None:
    data = encode_claim(Claim(workers=3))
    assert decode_claim(data).workers == 3
    older = bytes((1, *data[1:-3]))  # what it says of workers and of failures is at its end
    assert decode_claim(older).workers == 1
    with pytest.raises(RemoteProtocolError, match="without workers"):
        decode_claim(data[:-3] + bytes(3))


@pytest.mark.parametrize("count", [0, WORKERS_MAX + 1])
def test_a_number_of_workers_that_cannot_be(count: int) -> None:
    with pytest.raises(ConfigError, match=f"workers = {count}"):
        StreamSettings(workers=count)


def test_an_instance_with_three_workers_takes_three_of_four_tasks(
    embedded: EmbeddedBroker,
) -> None:
    asyncio.run(_shared(Case(embedded.bootstrap_servers)))


async def _shared(case: Case) -> None:
    settings = StreamSettings(commit_interval_ms=100, lag_interval_ms=50, learners=EXACT)
    larger = structs.replace(settings, workers=3)
    application, address = case.application(), case.address
    async with (
        running(application, address, settings, heartbeat_interval_ms=200) as small,
        running(application, address, larger, heartbeat_interval_ms=200) as large,
    ):
        for one, share in ((small, 1), (large, TASKS - 1)):
            await one.until(partial(_runs, one, share))


def _runs(one: Running, count: int) -> bool:
    return list(one.instance.tasks.values()).count(Role.RUNNING) == count
