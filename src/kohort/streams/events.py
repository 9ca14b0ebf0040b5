"""What an instance of a stream application reports: facts with their times."""

from __future__ import annotations

from msgspec import Struct

from kohort.streams.assignment.tasks import Task


class StreamsEvent(Struct, frozen=True, kw_only=True):
    """Base of all facts.

    Attributes:
        at: When, in milliseconds since the epoch by the clock of this host.
    """

    at: int

    @property
    def kind(self) -> str:
        """Name of the fact."""
        return type(self).__name__


class TasksChanged(StreamsEvent, frozen=True, kw_only=True):
    """The leader's plan has come.

    Attributes:
        generation: The group's generation.
        active: What this instance processes.
        learning: What it learns.
        standbys: What it follows.
    """

    generation: int
    active: frozenset[Task]
    learning: frozenset[Task]
    standbys: frozenset[Task]


class RebalanceAsked(StreamsEvent, frozen=True, kw_only=True):
    """The instance asked its group for a rebalance (KIP-568, KIP-800)."""

    reason: str


class TaskStarted(StreamsEvent, frozen=True, kw_only=True):
    """A task is processed here from now on.

    Attributes:
        task: The task.
        restored: Records that were replayed after it was granted.
        granted_at: When this instance was granted it, in milliseconds since the epoch.
        released_at: When its owner stopped, by that host's clock; None: no owner released it.
        owner: Member id of that owner.
    """

    task: Task
    restored: int
    granted_at: int
    released_at: int | None = None
    owner: str = ""

    @property
    def unavailable_ms(self) -> int | None:
        """For how long nobody processed the task; None where no owner said when it stopped."""
        return None if self.released_at is None else max(0, self.at - self.released_at)


class TaskReleased(StreamsEvent, frozen=True, kw_only=True):
    """A task is no longer processed here: committed, and its end written for the next owner.

    Attributes:
        task: The task.
        stopped_at: When its last record was processed, in milliseconds since the epoch.
    """

    task: Task
    stopped_at: int


class TaskLost(StreamsEvent, frozen=True, kw_only=True):
    """The group went on without this instance: a task is another one's.

    What was processed since the last commit that the group has taken is processed again. A commit
    that was under way may have been taken.
    """

    task: Task


class TaskFailed(StreamsEvent, frozen=True, kw_only=True):
    """A task stopped with an error; the others go on.

    Attributes:
        task: The task.
        error: What it raised.
    """

    task: Task
    error: BaseException


class StateRestored(StreamsEvent, frozen=True, kw_only=True):
    """State was replayed from changelogs up to where they ended.

    Attributes:
        task: The task.
        records: Records that were replayed since the instance took the task up.
        seconds: How long that took, waiting included.
    """

    task: Task
    records: int
    seconds: float
