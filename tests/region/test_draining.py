"""The drain, for `rebalance="reset"`: numbers 47 to 51 of docs/internals/region-rules.md."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from kohort.client import Consumer, ConsumerRecord
from kohort.region import KeyedState, ParquetDirectory, RegionPartition
from kohort.region.draining import Draining
from kohort.region.inspecting import ask, history
from kohort.region.machines.events import CutFailed
from kohort.region.machines.operator import OperatorState
from kohort.region.machines.records import DRAIN, Ask, Contribution
from kohort.region.operating import Operating
from kohort.region.work import Batch, Cut, Discard, Inbox
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.region.harness import P, Process, Q, Region, one
from tests.region.regions import (
    LONG_S,
    Running,
    eventually,
    new_topic,
    produce,
    running,
    running_sum,
    visible,
    worker,
)
from tests.region.test_shell_faults import RefusedCommits

PARTITIONS = 4
PLACE = TopicPartition("t", 0)
PARTITION = RegionPartition("t", "an-id", 0)


def batch(first: int) -> Batch:
    record = ConsumerRecord("t", 0, first, 0, 0, None, b"1", (), -1)
    return Batch(PARTITION, 1, [record])


def draining(inbox: Inbox, *, empties_queue: bool = True, consumer: object = None) -> Draining:
    return Draining(cast("Any", consumer), inbox, empties_queue=empties_queue, limit_ms=60_000)


def test_a48_a_drain_empties_the_queue_into_a_buffer_that_goes_back_in_order() -> None:
    inbox = Inbox(100)
    for number in range(2):
        inbox.put(batch(number))
    drain = draining(inbox)
    drain.begin()
    inbox.put(batch(2))  # of a poll that was under way
    inbox.put(Cut(1, 1))
    assert (inbox.take(0), inbox.take(0), inbox.pending) == (Cut(1, 1), None, 3)
    assert drain.end()
    assert [inbox.take(0) for _ in range(4)] == [*map(batch, range(3)), None]
    assert not drain.end()


def test_a48_a_reset_clears_the_drain_buffer() -> None:
    inbox = Inbox(100)
    drain = draining(inbox)
    inbox.put(batch(0))
    drain.begin()
    inbox.put(Discard(2))
    drain.end()
    assert (inbox.take(0), inbox.take(0), inbox.pending) == (Discard(2), None, 0)


def test_a49_a_drain_of_an_operator_driven_region_leaves_the_queue() -> None:
    inbox = Inbox(100)
    inbox.put(batch(0))
    draining(inbox, empties_queue=False).begin()
    assert inbox.take(0) == batch(0)


def test_a50_offsets_are_committed_in_one_request_for_what_is_assigned() -> None:
    commits: list[Mapping[TopicPartition, OffsetAndMetadata]] = []

    class Committing:
        async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], _: int) -> None:
            commits.append(offsets)

    gone, other = PARTITION._replace(partition=1), PARTITION._replace(partition=2)
    drain = draining(Inbox(10), consumer=Committing())
    places = {PLACE: PARTITION, PLACE._replace(partition=2): other}
    asyncio.run(drain.commit({PARTITION: 7, gone: 5, other: 9}, places))
    asyncio.run(drain.commit({gone: 5}, places))
    expected = {PLACE: OffsetAndMetadata(7), PLACE._replace(partition=2): OffsetAndMetadata(9)}
    assert commits == [expected]


def test_a47_polls_go_on_when_a_drain_takes_too_long() -> None:
    """Else the group would throw the member out."""
    drain = Draining(cast("Any", None), Inbox(10), empties_queue=True, limit_ms=1)
    drain.begin()
    asyncio.run(asyncio.wait_for(drain.may_poll(), 60))


def test_a47_no_poll_comes_between_two_drains_that_follow_each_other() -> None:
    async def play() -> None:
        drain = draining(Inbox(10))
        drain.begin()
        may_poll = asyncio.create_task(drain.may_poll())
        await asyncio.sleep(0)
        drain.end()
        drain.begin()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not may_poll.done()
        drain.end()
        await asyncio.wait_for(may_poll, LONG_S)

    asyncio.run(play())


class Trace:
    """A function that waits until it may go on; it notes what its operator does, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_go_on = threading.Event()
        self.given = 0
        self.steps: list[str] = []
        self.waiting: list[int] = []
        self._patch = monkeypatch
        self._note(Operating, "_polled", "poll")
        self._note(Draining, "commit", "commit")
        self._note(Operating, "_append", "append")
        begin, end = Draining.begin, Draining.end

        def begun(drain: Draining) -> None:
            begin(drain)
            self.steps.append("begin")
            self.waiting.append(drain._inbox.pending)

        def ended(drain: Draining) -> bool:
            was_on = end(drain)
            self.steps += ["end"] * was_on
            return was_on

        monkeypatch.setattr(Draining, "begin", begun)
        monkeypatch.setattr(Draining, "end", ended)

    def _note(self, kind: type, name: str, step: str) -> None:
        original = getattr(kind, name)

        async def noted(*given: Any) -> Any:
            self.steps.append(step)
            return await original(*given)

        self._patch.setattr(kind, name, noted)

    def __call__(
        self, partition: RegionPartition, records: Sequence[ConsumerRecord], state: KeyedState
    ) -> list[dict[str, int]]:
        self.steps.append("call")
        assert self.may_go_on.wait(LONG_S)
        self.given += len(records)
        return running_sum(partition, records, state)

    def drains(self) -> list[list[str]]:
        """Return what was done from the begin of each drain to its end."""
        begins = [at for at, step in enumerate(self.steps) if step == "begin"]
        found = [self.steps[at:until] for at, until in pairwise([*begins, len(self.steps)])]
        return [each[: each.index("end")] for each in found if "end" in each]


def test_a47_a_drain_stops_polling_and_commits_before_it_contributes(
    servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, trace, count = new_topic(servers, PARTITIONS), Trace(monkeypatch), 400
    client: dict[str, Any] = {"bootstrap_servers": servers}
    settings: dict[str, Any] = {"rebalance": "reset", "function": trace, "max_poll_records": 5}
    settings["period_ms"] = 600_000
    produce(servers, topic, PARTITIONS, count)
    one = worker(servers, topic, ParquetDirectory(tmp_path), **settings)
    with running(one) as (worked,), ThreadPoolExecutor() as beside:
        eventually(lambda: "call" in trace.steps, "the function is called")
        inner = one._worker
        assert inner is not None
        eventually(lambda: inner.inbox.pending > 50, "the queue is not empty")
        asked = beside.submit(lambda: asyncio.run(ask(one.region, client, DRAIN)))
        eventually(lambda: "begin" in trace.steps, "a drain begins while the function runs")
        trace.may_go_on.set()
        assert asked.result(LONG_S).completed == 1
        eventually(lambda: trace.given == count, "the queue has come back")
        assert asyncio.run(ask(one.region, client, DRAIN)).completed == 2
        places = [TopicPartition(topic, each) for each in range(PARTITIONS)]
        with Consumer(group_id=f"group-{topic}", **client) as reader:
            found = {at: each.offset for at, each in reader.committed(*places).items()}
        assert found == dict.fromkeys(places, count // PARTITIONS)
    assert worked.error is None
    assert visible(tmp_path) == count
    assert trace.waiting[0] > 50
    drains = trace.drains()
    assert len(drains) >= 2
    for steps in drains:
        assert "poll" not in steps
        assert "call" not in steps
        assert steps.count("commit") == 1
        assert steps.index("commit") < steps.index("append")


def draining_one() -> tuple[Region, Process]:
    """Return a region with the rule of the original that waits for a cut of a."""
    region, a = one("reset")
    a.cuts = False
    region.pass_time(1_000)
    return region, a


def test_a50_a_commit_that_fails_for_one_partition_resets_the_region() -> None:
    region, a = draining_one()
    region.controls = False
    effects = a.tell(CutFailed(1, 1, "t-0: refused"))
    assert a.machine.state is OperatorState.CR_RESET_PENDING
    assert effects.stops == {P, Q}
    assert ["a/1 gave up checkpoint 1: t-0: refused" in e.text for e in effects.observed] == [True]
    region.run()
    (asked,) = (each for each in region.log if isinstance(each, Ask))
    assert not asked.force
    region.controls = True
    region.run()
    assert (region.state.attempt, region.state.resets, region.state.completed) == (2, 1, 0)
    assert a.reads[P].offset == 0
    assert not any(isinstance(each, Contribution) for each in region.log)


def test_a50_a_failure_of_an_earlier_drain_changes_nothing() -> None:
    region, a = draining_one()
    a.put(CutFailed(7, 1, "of another checkpoint"))
    a.put(CutFailed(1, 0, "of another attempt"))
    assert a.machine.state is OperatorState.RECORDS_FETCHED
    assert region.state.attempt == 1


def attempt_of(one: Running) -> int:
    return 0 if one.worker.state is None else one.worker.state.attempt


class RefusedForAWhile(RefusedCommits):
    """Refuses the offset of partition 0 as long as it is told to."""

    def __init__(self, broker: str) -> None:
        super().__init__(broker)
        self.is_refusing = threading.Event()

    def changed(self, key: int, frame: bytes) -> bytes:
        return super().changed(key, frame) if self.is_refusing.is_set() else frame


def test_a50_a_drain_whose_commit_is_refused_loses_and_repeats_nothing(
    address: str, topic: str, tmp_path: Path
) -> None:
    produce(address, topic, PARTITIONS, 400)
    with RefusedForAWhile(address) as proxy:
        settings: dict[str, Any] = {"rebalance": "reset", "period_ms": 500}
        one = worker(proxy.bootstrap_servers, topic, ParquetDirectory(tmp_path), **settings)
        with running(one) as (first,):
            eventually(lambda: visible(tmp_path) == 400, "it works")
            proxy.is_refusing.set()
            produce(address, topic, PARTITIONS, 400, first=400)
            eventually(lambda: attempt_of(first) > 1, "the region goes back")
            assert visible(tmp_path) == 400
            proxy.is_refusing.clear()
            eventually(lambda: visible(tmp_path) == 800, "all is visible, once")
            records = asyncio.run(history(one.region, {"bootstrap_servers": address}))
    assert first.error is None
    reasons = [each.record.why for each in records if isinstance(each.record, Ask)]
    assert "its offsets could not be committed to the group" in reasons[0]
    assert f"{topic}-0" in reasons[0]
