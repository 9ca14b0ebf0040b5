"""The order of a commit, step by step, and what each failure leaves out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kohort import AsyncConsumer, AsyncProducer
from kohort.errors import CommitFailedError, ErrorCode, RebalanceInProgressError
from kohort.streams.assignment.tasks import Task
from kohort.streams.runtime.committing import Commits
from kohort.streams.runtime.holding import Held
from kohort.streams.runtime.interface import Output
from kohort.types import TopicPartition

INPUT = TopicPartition("in", 0)


class Clients:
    """A producer and a consumer that note what is done with them."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.lost: Exception | None = None
        self.refused: Exception | None = None
        self.membership = SimpleNamespace(is_session_over=False)
        self._internals = SimpleNamespace(core=SimpleNamespace(membership=self.membership))

    async def send(self, *_: object, **__: object) -> asyncio.Future[None]:
        sent = asyncio.get_running_loop().create_future()
        if self.lost is not None:
            sent.set_exception(self.lost)
        else:
            sent.set_result(None)
        return sent

    async def send_arrow(self, _topic: str, _table: object) -> asyncio.Future[Any]:
        class Delivery:
            topic = "changes"

            class Rows:
                last_offset = 7

            partitions: Mapping[int, Any] = {0: Rows}

        sent = asyncio.get_running_loop().create_future()
        sent.set_result(Delivery)
        return sent

    async def flush(self) -> None:
        self.steps.append("sent")

    async def commit(self, offsets: Mapping[TopicPartition, Any]) -> None:
        if self.refused is not None:
            error, self.refused = self.refused, None
            raise error
        self.steps.append(f"offset {offsets[INPUT].offset}")


class Work:
    """A task with one store and one output, which is its own store and directory."""

    changelogs: Mapping[str, str] = {"store": "changes"}

    def __init__(self, steps: list[str]) -> None:
        self.steps = steps
        self.outputs = [Output("out", b"k", b"v")]
        self.stores = {"store": self}
        self.full: Exception | None = None

    def positions(self) -> Mapping[TopicPartition, int]:
        return {INPUT: 3}

    def changes(self) -> Sequence[tuple[bytes, bytes]]:
        return [(b"k", b"v")]

    def flush(self) -> None:
        if self.full is not None:
            raise self.full
        self.steps.append("flushed")

    def read_checkpoint(self) -> Mapping[TopicPartition, int]:
        raise NotImplementedError

    def write_checkpoint(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.steps.append(f"checkpoint {offsets[TopicPartition('changes', 0)]}")


class Case:
    """A task that has something to commit."""

    def __init__(self) -> None:
        self.clients = Clients()
        self.work = Work(self.clients.steps)
        self.held = Held(Task(0, 0), cast("Any", self.work), self.work, frozenset({INPUT}))
        self.held.is_dirty = True
        self.failed: list[BaseException] = []
        self.commits = Commits(
            "app",
            cast("AsyncProducer", self.clients),
            cast("AsyncConsumer", self.clients),
            lambda _, error: self.failed.append(error),
        )

    async def commit(self, *, is_last: bool = False) -> Iterable[Held]:
        return await self.commits.commit([self.held], is_last=is_last)


@pytest.mark.parametrize("is_last", [False, True])
def test_nothing_is_written_while_the_session_is_over(
    is_last: bool, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case()
    case.clients.membership.is_session_over = True
    for _ in range(2):
        assert asyncio.run(case.commit(is_last=is_last)) == []
    assert case.clients.steps == []
    assert case.held.is_dirty
    assert [each.levelname for each in caplog.records] == ["WARNING"]  # once, until it is back
    case.clients.membership.is_session_over = False
    assert asyncio.run(case.commit(is_last=is_last)) == [case.held]


def test_offsets_are_committed_as_soon_as_the_brokers_have_everything() -> None:
    case = Case()
    assert asyncio.run(case.commit()) == [case.held]
    assert case.clients.steps == ["sent", "offset 3", "flushed", "checkpoint 8"]
    assert case.held.committed == {INPUT: 3}
    assert not case.held.is_dirty


def test_nothing_is_committed_or_flushed_of_a_task_whose_output_is_lost() -> None:
    case = Case()
    case.clients.lost = ValueError("lost")
    assert asyncio.run(case.commit()) == []
    assert case.clients.steps == ["sent"]
    assert case.failed == [case.clients.lost]
    assert case.held.committed == {}


def test_a_refused_commit_leaves_the_disk_as_it_was() -> None:
    case = Case()
    case.clients.refused = CommitFailedError(ErrorCode.ILLEGAL_GENERATION)
    with pytest.raises(CommitFailedError):
        asyncio.run(case.commit())
    assert case.clients.steps == ["sent"]


@pytest.mark.parametrize("is_last", [False, True])
def test_a_rebalance_puts_a_commit_off(is_last: bool) -> None:
    case = Case()
    case.clients.refused = RebalanceInProgressError("a rebalance")
    committed = asyncio.run(case.commit(is_last=is_last))
    assert committed == ([case.held] if is_last else [])
    after = ["offset 3", "flushed", "checkpoint 8"] if is_last else []
    assert case.clients.steps == ["sent", *after]
    assert case.held.is_dirty is not is_last


def test_a_full_disk_fails_the_task_and_keeps_the_older_checkpoint() -> None:
    case = Case()
    case.work.full = OSError("full")
    assert asyncio.run(case.commit()) == []
    assert case.clients.steps == ["sent", "offset 3"]
    assert case.failed == [case.work.full]


def test_a_commit_waits_until_no_record_is_half_processed() -> None:
    case = Case()

    async def run() -> None:
        case.held.is_idle.clear()
        committing = asyncio.create_task(case.commit())
        await asyncio.sleep(0)
        assert case.clients.steps == []
        case.held.is_idle.set()
        await committing

    asyncio.run(run())
    assert case.clients.steps[1] == "offset 3"
