"""A task as an instance has it: what it does with it, and how far it is with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum
from typing import Any

from kohort.client.arrow_delivery import ArrowDelivery
from kohort.client.delivery import RecordMetadata
from kohort.streams.assignment.tasks import Task
from kohort.streams.interface import StateDirectory, StreamTask
from kohort.streams.restoring import Replay
from kohort.types import TopicPartition


class Role(Enum):
    """What an instance does with a task."""

    FOLLOWING = "it replays the changelog, as a learner or a standby"
    RESTORING = "it was granted the task, and replays the rest of the changelog"
    RUNNING = "it processes the task"
    RELEASING = "it commits the task for the last time"
    RELEASED = "it has given the task up"
    FAILED = "the task raised and stands still"


class Held:
    """One task.

    Args:
        task: The task.
        work: What processes it, and has its state.
        directory: Where that is on disk; None: nowhere.
        inputs: The partitions it reads.

    Attributes:
        role: What the instance does with it.
        replay: The replay of its state, while it follows or restores.
        changelog_ends: Up to where each changelog is what the state is; what it writes itself
            counts once the broker has it.
        sent: What was sent and is not known to be stored.
        sent_changes: The same of changes of state.
        positions: The next offset of each input at the last commit.
        committed: Those that the group has.
        is_idle: Whether no record is half processed.
        is_dirty: Whether it processed something since the last commit.
        is_torn: Whether something was taken out of it that is not yet with the producer, or a
            record was begun and not finished: nothing may be committed.
        sending: Held by whoever sends what it wrote.
        stopped_at: When it was stopped to be released, in milliseconds since the epoch.
        job: What is being done to bring it where its role says.
        error: Why it failed.
        has_failed: Whether it has; what waits for it goes on then.
    """

    def __init__(
        self,
        task: Task,
        work: StreamTask,
        directory: StateDirectory | None,
        inputs: frozenset[TopicPartition],
    ) -> None:
        self.task = task
        self.work = work
        self.directory = directory
        self.inputs = inputs
        self.role = Role.FOLLOWING
        self.replay: Replay | None = None
        self.changelog_ends: dict[TopicPartition, int] = {}
        self.sent: list[asyncio.Future[RecordMetadata]] = []
        self.sent_changes: list[asyncio.Future[ArrowDelivery]] = []
        self.positions: Mapping[TopicPartition, int] = {}
        self.committed: Mapping[TopicPartition, int] = {}
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        self.is_dirty = False
        self.is_torn = False
        self.sending = asyncio.Lock()
        self.stopped_at = 0
        self.job: asyncio.Task[None] | None = None
        self.error: BaseException | None = None
        self.has_failed = asyncio.Event()

    @property
    def is_owned(self) -> bool:
        """Whether the group has given the task to this instance."""
        return self.role in (Role.RESTORING, Role.RUNNING, Role.FAILED)

    def forget_sent(self) -> None:
        """Hear no more of what was sent: the task has failed or is given up."""
        every: list[asyncio.Future[Any]] = [*self.sent, *self.sent_changes]
        for each in every:
            each.add_done_callback(_pass_over)

    def stop_job(self) -> None:
        """Give up what is being done."""
        if self.job is not None and self.job is not asyncio.current_task():
            self.job.cancel()
        self.job = None


def _pass_over(sent: asyncio.Future[Any]) -> None:
    """Have asyncio not complain of an exception that was not looked at."""
    if not sent.cancelled():
        sent.exception()
