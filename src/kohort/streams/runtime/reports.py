"""Reports an instance's task events: in the log, as events, and in the control topic."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine

from kohort.client import AsyncConsumer
from kohort.errors import KohortError
from kohort.streams.assignment.tasks import Task
from kohort.streams.events import StreamsEvent, TaskFailed, TaskStarted
from kohort.streams.log.control import ControlLog
from kohort.streams.log.records import ERROR_TEXT_MAX, ControlRecord, Failed, Released, Started
from kohort.streams.runtime.holding import Held

log = logging.getLogger("kohort.streams")


class Jobs:
    """Background work on one event loop."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Start work in the background."""
        job = asyncio.create_task(work)
        self._running.add(job)
        job.add_done_callback(self._running.discard)
        return job

    async def close(self) -> None:
        """Cancel the running work."""
        for each in self._running:
            each.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


class Reports:
    """Reports what happens to tasks.

    Args:
        name: Name of the application.
        consumer: The member of the group.
        control: The application's control topic.
        tell: Called with each event.
        jobs: Runs work that must be awaited.

    Attributes:
        failures: The errors of this instance's failed tasks, until they run again.
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
        """Report that an owned task has stopped with an error."""
        log.error(
            "%s: task %s has stopped until it is moved or this instance restarts; its records since"
            " the last commit are not committed",
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
        """Return the error of a granted task that has failed here before, or None.

        A failed task may be revoked from its instance and granted again, for example when its input
        is deleted and recreated. It remains failed unless another member has had the task since;
        the control topic must have been read to its end.
        """
        error, last = self.failures.get(task), self._control.state.tasks.get(task)
        own = (self._failed_as.get(task), self._consumer.member_id)
        return error if last is None or last.member in own else None

    def failed_to_follow(self, task: Task, error: BaseException) -> None:
        """Report that a task cannot be learned or followed; its owner is not affected.

        This writes no record to the control topic, where the last record about a task must be its
        owner's. This member's claim tells the group.
        """
        log.error(
            "%s: task %s cannot be learned or followed here; its owner continues, and others may"
            " learn it. Remove the cause and restart this instance",
            self._name,
            task,
            exc_info=error,
        )
        self._tell(TaskFailed(at=now_ms(), task=task, error=error))

    async def started(self, held: Held, granted_at: int, restored: int) -> None:
        """Report that a task is being processed.

        Args:
            held: The task.
            granted_at: When it was granted, in milliseconds since the epoch.
            restored: Number of records replayed since.
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
        """Return the release record of a task, for its next owner."""
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
        """Log why a task gets no final commit, unless that was already logged."""
        if held.is_torn and held.error is None:
            log.warning(
                "%s: the run was cancelled or interrupted while task %s processed a record or sent"
                " its output; it is given up without a commit, and its records since the last one"
                " are processed again",
                self._name,
                held.task,
            )

    async def _say(self, record: ControlRecord) -> None:
        """Append an informational record."""
        try:
            await self._control.append(record)
        except KohortError as error:
            log.warning("%s: %s could not be written: %s", self._name, record, error)


def now_ms() -> int:
    """Return the time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
