"""A task of an instance: its role and its progress."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum
from typing import Any

from kohort.client.producer.arrow.delivery import ArrowDelivery
from kohort.client.producer.delivery import RecordMetadata
from kohort.streams.assignment.tasks import Task
from kohort.streams.runtime.interface import StateDirectory, StreamTask
from kohort.streams.runtime.restoring import Replay
from kohort.types import TopicPartition


class Role(Enum):
    """An instance's role for a task."""

    FOLLOWING = "it replays the changelog, as a learner or a standby"
    RESTORING = "it was granted the task, and replays the rest of the changelog"
    RUNNING = "it processes the task"
    RELEASING = "it commits the task for the last time"
    RELEASED = "it has given the task up"
    FAILED = "the task raised and has stopped"


class Held:
    """One task.

    Args:
        task: The task.
        work: Processes it, and has its state.
        directory: Its state on disk; None: state is kept in memory.
        inputs: The partitions that it reads.

    Attributes:
        role: The instance's role for it.
        replay: The replay of its state while it is followed or restored.
        changelog_ends: For each changelog, the offset at which it equals the state; the task's own
            changes count once the broker has them.
        sent: Output records in flight.
        sent_changes: Changes of state in flight.
        positions: The next offset of each input at the last commit.
        committed: The offsets committed to the group.
        is_idle: Whether no record is partly processed.
        is_dirty: Whether it processed records since the last commit.
        is_torn: Whether some of its output was taken but has not reached the producer, or a record
            is partly processed: then it must not be committed.
        sending: Lock held while its output is sent.
        stopped_at: When it stopped in order to be released, in milliseconds since the epoch.
        job: The running background work for its role.
        error: The error that made it fail.
        has_failed: Event that is set when it fails, for those that wait for the task.
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
        """Whether the group has assigned the task to this instance."""
        return self.role in (Role.RESTORING, Role.RUNNING, Role.FAILED)

    def forget_sent(self) -> None:
        """Ignore the results of records in flight: the task has failed or is being given up."""
        every: list[asyncio.Future[Any]] = [*self.sent, *self.sent_changes]
        for each in every:
            each.add_done_callback(_pass_over)

    def stop_job(self) -> None:
        """Cancel the running work."""
        if self.job is not None and self.job is not asyncio.current_task():
            self.job.cancel()
        self.job = None


def _pass_over(sent: asyncio.Future[Any]) -> None:
    """Retrieve an exception so that asyncio does not warn about it."""
    if not sent.cancelled():
        sent.exception()
