"""The state of the group when a rebalance begins: input to the assignor and the refiner."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from kohort.streams.assignment.tasks import Task

UNABLE_MAX = 8
"""A member that has failed to learn this many tasks is given no others to learn."""


class Current(Struct, frozen=True, kw_only=True):
    """The tasks of the members.

    Attributes:
        owner: The member that processes a task, by task.
        previous: The member that gave up a task when it joined, because another member learns it.
        learner: The member that learns a task, by task.
        standbys: The members that have a standby of a task, by task.
        contested: Tasks that a member other than the owner also claims: no other member may get
            these until that claim is gone.
    """

    owner: Mapping[Task, str] = field(default_factory=dict)
    previous: Mapping[Task, str] = field(default_factory=dict)
    learner: Mapping[Task, str] = field(default_factory=dict)
    standbys: Mapping[Task, tuple[str, ...]] = field(default_factory=dict)
    contested: frozenset[Task] = frozenset()


class Readiness(Struct, frozen=True, kw_only=True):
    """The members' lags with state of tasks that they do not process.

    Attributes:
        lags: For each task, the lag in offsets by member; None: unknown.
        acceptable: The maximum lag in offsets at which a member is ready.
        unable: The tasks that each member failed to learn or follow; members without failures are
            left out.
    """

    lags: Mapping[Task, Mapping[str, int | None]] = field(default_factory=dict)
    acceptable: int = 10_000
    unable: Mapping[str, frozenset[Task]] = field(default_factory=dict)

    def is_ready(self, task: Task, member: str) -> bool:
        """Whether a member could process a task at once."""
        lag = self.lags.get(task, {}).get(member)
        return lag is not None and lag <= self.acceptable

    def is_able(self, task: Task, member: str) -> bool:
        """Whether a member may be asked to learn or follow a task.

        A member with many failures probably has a problem of its own, such as a bad disk, and gets
        no more tasks.
        """
        failed = self.unable.get(member, ())
        return task not in failed and len(failed) < UNABLE_MAX

    def holders(self, task: Task) -> list[str]:
        """Return the members that have state of a task: ready ones first, then by lag."""
        lags = self.lags.get(task, {})
        return sorted(lags, key=lambda member: (_behind(lags[member]), member))


def _behind(lag: int | None) -> tuple[bool, int]:
    return lag is None, lag or 0


class Leaving(Struct, frozen=True):
    """The members that are leaving.

    Attributes:
        members: All leaving members.
        overdue: Those past their deadline.
    """

    members: frozenset[str] = frozenset()
    overdue: frozenset[str] = frozenset()

    def stayers(self, members: tuple[str, ...]) -> tuple[str, ...]:
        """Return the members that may get tasks: if all are leaving, those with time left."""
        found = tuple(each for each in members if each not in self.members)
        return found or tuple(each for each in members if each not in self.overdue)


class Situation(Struct, frozen=True, kw_only=True):
    """The complete input of the assignor.

    Attributes:
        tasks: All tasks, in order.
        stateless: Numbers of the sub-topologies without state.
        members: All members, in order.
        newcomers: Members that were not in the last generation.
        leaving: Members that are leaving.
        current: The tasks of the members.
        readiness: The members' lags with tasks that they do not process.
        client_tags: The tags of each member (KIP-708).
        workers: The number of workers of each member; 1 by default.
    """

    tasks: tuple[Task, ...]
    members: tuple[str, ...]
    stateless: frozenset[int] = frozenset()
    newcomers: frozenset[str] = frozenset()
    leaving: Leaving = Leaving()
    current: Current = field(default_factory=Current)
    readiness: Readiness = field(default_factory=Readiness)
    client_tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    workers: Mapping[str, int] = field(default_factory=dict)


class Target(Struct, frozen=True):
    """The final place of each task.

    Attributes:
        active: The member of each task.
        stateless: Numbers of the sub-topologies without state.
        workers: The number of workers of each member; 1 by default.
    """

    active: Mapping[Task, str]
    stateless: frozenset[int] = frozenset()
    workers: Mapping[str, int] = field(default_factory=dict)


class Transition(Struct, frozen=True):
    """Grants and learners until the next rebalance.

    Attributes:
        grants: The member that processes each task. A task being handed over is missing: its owner
            gives it up, and the next rebalance grants it.
        learners: The member that learns each task.
    """

    grants: Mapping[Task, str]
    learners: Mapping[Task, str]
