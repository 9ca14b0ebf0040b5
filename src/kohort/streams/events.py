"""The events that an instance of a stream application reports."""

from __future__ import annotations

from msgspec import Struct

from kohort.streams.assignment.tasks import Task


class StreamsEvent(Struct, frozen=True, kw_only=True):
    """Base class of all events.

    Attributes:
        at: When it happened, in milliseconds since the epoch by this host's clock.
    """

    at: int

    @property
    def kind(self) -> str:
        """Name of the event."""
        return type(self).__name__


class TasksChanged(StreamsEvent, frozen=True, kw_only=True):
    """The leader's plan has arrived.

    Attributes:
        generation: The group's generation.
        active: Tasks that this instance processes.
        learning: Tasks that it learns.
        standbys: Tasks that it follows.
    """

    generation: int
    active: frozenset[Task]
    learning: frozenset[Task]
    standbys: frozenset[Task]


class RebalanceAsked(StreamsEvent, frozen=True, kw_only=True):
    """The instance asked its group for a rebalance (KIP-568, KIP-800)."""

    reason: str


class TaskStarted(StreamsEvent, frozen=True, kw_only=True):
    """This instance has started to process a task.

    Attributes:
        task: The task.
        restored: Number of records replayed after the task was granted.
        granted_at: When it was granted to this instance, in milliseconds since the epoch.
        released_at: When its owner stopped, by the owner's clock; None: no owner released it.
        owner: Member id of that owner.
    """

    task: Task
    restored: int
    granted_at: int
    released_at: int | None = None
    owner: str = ""

    @property
    def unavailable_ms(self) -> int | None:
        """Milliseconds without processing; None if the owner did not report when it stopped."""
        return None if self.released_at is None else max(0, self.at - self.released_at)


class TaskReleased(StreamsEvent, frozen=True, kw_only=True):
    """This instance has committed a task, and written its ends for the next owner.

    Attributes:
        task: The task.
        stopped_at: When its last record was processed, in milliseconds since the epoch.
    """

    task: Task
    stopped_at: int


class TaskLost(StreamsEvent, frozen=True, kw_only=True):
    """The group removed this instance, and another one has the task.

    Records since the last accepted commit are processed again. A commit in flight may have been
    accepted.
    """

    task: Task


class TaskFailed(StreamsEvent, frozen=True, kw_only=True):
    """A task stopped with an error; other tasks continue.

    Attributes:
        task: The task.
        error: Its error.
    """

    task: Task
    error: BaseException


class StateRestored(StreamsEvent, frozen=True, kw_only=True):
    """State was replayed from changelogs up to their ends.

    Attributes:
        task: The task.
        records: Number of records replayed since the instance took over the task.
        seconds: How long that took, in seconds, including waits.
    """

    task: Task
    records: int
    seconds: float
