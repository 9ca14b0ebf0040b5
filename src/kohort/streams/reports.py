"""What an instance says of its tasks: to people in the log, as events, and in the control topic."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine

from kohort.client import AsyncConsumer
from kohort.errors import KohortError
from kohort.streams.assignment.tasks import Task
from kohort.streams.control import ControlLog
from kohort.streams.events import StreamsEvent, TaskFailed, TaskStarted
from kohort.streams.holding import Held
from kohort.streams.records import ERROR_TEXT_MAX, ControlRecord, Failed, Released, Started

log = logging.getLogger("kohort.streams")


class Jobs:
    """What is done in the background, on one event loop."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Begin something."""
        job = asyncio.create_task(work)
        self._running.add(job)
        job.add_done_callback(self._running.discard)
        return job

    async def close(self) -> None:
        """Give up what is being done."""
        for each in self._running:
            each.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


class Reports:
    """Says what happens to tasks.

    Args:
        name: Name of the application.
        consumer: The member of the group.
        control: The application's control topic.
        tell: Told what happens.
        jobs: Does what has to be awaited.

    Attributes:
        failures: What tasks of this instance have raised, unless they run again.
    """

    def __init__(
        self,
        name: str,
        consumer: AsyncConsumer,
        control: ControlLog,
        tell: Callable[[StreamsEvent], None],
        jobs: Jobs,
    ) -> None:
        self.failures: dict[Task, BaseException] = {}
        self._failed_as: dict[Task, str] = {}
        self.url = ""
        self._name = name
        self._consumer = consumer
        self._control = control
        self._tell = tell
        self._jobs = jobs

    def failed(self, task: Task, error: BaseException) -> None:
        """Say that a task which the instance owns stands still."""
        log.error(
            "%s: task %s stands still until it is moved or this instance restarts; what it read is"
            " not committed beyond its last commit",
            self._name,
            task,
            exc_info=error,
        )
        self.failures[task] = error
        self._failed_as[task] = self._consumer.member_id
        self._tell(TaskFailed(at=now_ms(), task=task, error=error))
        _ = self._jobs.start(
            self._say(
                Failed(
                    task=task,
                    generation=self._consumer.generation_id,
                    member=self._consumer.member_id,
                    at=now_ms(),
                    error=f"{type(error).__name__}: {error}"[:ERROR_TEXT_MAX],
                )
            )
        )

    def standing_still(self, task: Task) -> BaseException | None:
        """Return why a task that is granted stands still; None if it has not failed here.

        A task that fails may be taken from its instance and given back, as when its input is
        deleted and made again. Nothing is better then, unless another member has had it since;
        the control topic has to be read to its end.
        """
        error, last = self.failures.get(task), self._control.state.tasks.get(task)
        own = (self._failed_as.get(task), self._consumer.member_id)
        return error if last is None or last.member in own else None

    def failed_to_follow(self, task: Task, error: BaseException) -> None:
        """Say that a task is not learned or followed, which its owner does not notice.

        The control topic does not hear of it: its last word on the task is that of the owner. The
        group is told by the claim of this member.
        """
        log.error(
            "%s: task %s cannot be learned or followed here; its owner goes on, and others may"
            " learn it. Remove the cause and restart this instance",
            self._name,
            task,
            exc_info=error,
        )
        self._tell(TaskFailed(at=now_ms(), task=task, error=error))

    async def started(self, held: Held, granted_at: int, restored: int) -> None:
        """Say that a task is processed.

        Args:
            held: The task.
            granted_at: When it was granted, in milliseconds since the epoch.
            restored: How many records were replayed since.
        """
        self.failures.pop(held.task, None)
        last = self._control.state.tasks.get(held.task)
        released = last if isinstance(last, Released) else None
        event = TaskStarted(
            at=now_ms(),
            task=held.task,
            restored=restored,
            granted_at=granted_at,
            released_at=None if released is None else released.at,
            owner="" if released is None else released.member,
        )
        self._tell(event)
        await self._say(
            Started(
                task=held.task,
                generation=self._consumer.generation_id,
                member=self._consumer.member_id,
                at=event.at,
                unavailable_ms=event.unavailable_ms,
                restored=restored,
                url=self.url,
                after="" if last is None or last is released else self._other(last.member),
            )
        )

    def _other(self, member: str) -> str:
        return "" if member == self._consumer.member_id else member

    def release_of(self, held: Held) -> Released:
        """Return what the next owner of a task has to know."""
        ends = (
            (topic, number, end) for (topic, number), end in sorted(held.changelog_ends.items())
        )
        return Released(
            task=held.task,
            generation=self._consumer.generation_id,
            member=self._consumer.member_id,
            at=held.stopped_at,
            ends=tuple(ends),
        )

    def given_up(self, held: Held) -> None:
        """Say why a task is not committed for the last time, if nobody else has."""
        if held.is_torn and held.error is None:
            log.warning(
                "%s: the run was cancelled or broken off while task %s processed a record or sent"
                " what it wrote; it is given up without a commit, and what it did since its last"
                " one is done again",
                self._name,
                held.task,
            )

    async def _say(self, record: ControlRecord) -> None:
        """Append what is only for people."""
        try:
            await self._control.append(record)
        except KohortError as error:
            log.warning("%s: %s could not be written: %s", self._name, record, error)


def now_ms() -> int:
    """Return the time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
