"""T6: once faults end, the application comes to rest, and is balanced."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kohort.simulation.streams.books import held_by, input_of, stores_of
from kohort.simulation.streams.work import KEYS, counted
from kohort.streams.assignment.member import TaskMemberState
from kohort.streams.assignment.tasks import Task
from kohort.streams.assignor import LearnerAssignor
from kohort.streams.runtime.holding import Role

if TYPE_CHECKING:
    from kohort.simulation.streams.process import StreamsProcess
    from kohort.simulation.streams.world import StreamsWorld


def check_rest(world: StreamsWorld) -> None:
    """Check that the application is at rest and balanced.

    Raises:
        ViolationError: Something is still under way, or the loads differ too much.
    """
    why = unrest(world)
    if why is not None:
        world.fail("T6", why)
    for task in every_task(world):
        _check_counts(world, task)


def every_task(world: StreamsWorld) -> list[Task]:
    """Return all tasks."""
    return world.topology.tasks(world.topics.counts())


def unrest(world: StreamsWorld) -> str | None:
    """Return what is unfinished or wrong."""
    processes = [each for each in world.processes() if not each.application.closing]
    if not processes:
        return None
    for process in processes:
        why = _unrest_of(process)
        if why is not None:
            return why
    stay = [each for each in processes if each.leaves_since is None]
    if stay and len(stay) < len(processes):
        return f"{len(processes) - len(stay)} members are still leaving"
    for task in every_task(world):
        book, end = world.books.book(task), world.topics.end(input_of(task))
        if book.committed < end:
            return f"{task} is committed to {book.committed} of {end}"
    return _unbalanced(world, processes)


def _unrest_of(process: StreamsProcess) -> str | None:
    assignor = process.assignors[0]
    assert isinstance(assignor, LearnerAssignor)
    session = assignor.session
    if session.state is not TaskMemberState.RUNNING:
        return f"{process.name} is {session.state.name}"
    if session.instructions.learning:
        return f"{process.name} still learns {min(session.instructions.learning)}"
    for task in sorted(session.active):
        held = held_by(process, task)
        if held is None or held.role is not Role.RUNNING:
            return f"{process.name} does not process {task}"
    for task in sorted(session.instructions.standbys):
        held = held_by(process, task)
        if held is None or held.role is not Role.FOLLOWING:
            return f"{process.name} does not follow {task}"
    return None


def _unbalanced(world: StreamsWorld, processes: list[StreamsProcess]) -> str | None:
    """Return the loads outside the band around the mean, for each kind of task."""
    count = len(processes)
    for number in range(len(world.topology.sub_topologies)):
        tasks = [each for each in every_task(world) if each.sub_topology == number]
        loads = [sum(held_by(p, t) is not None and _runs(p, t) for t in tasks) for p in processes]
        mean, away = len(tasks) / count, world.plan.imbalance
        low = min(len(tasks) // count, mean * (1 - away))
        high = max(-(-len(tasks) // count), mean * (1 + away))
        if min(loads) < low or max(loads) > high:
            return f"loads are {loads}, from {low:g} to {high:g} is balanced"
    replicas = min(world.plan.num_standby_replicas, count - 1)
    copies: Counter[Task] = Counter()
    for process in processes:
        assignor = process.assignors[0]
        assert isinstance(assignor, LearnerAssignor)
        copies.update(assignor.session.instructions.standbys)
    wrong = [t for t in every_task(world) if not t.sub_topology and copies[t] != replicas]
    return f"{wrong[0]} has {copies[wrong[0]]} standbys of {replicas}" if wrong else None


def _runs(process: StreamsProcess, task: Task) -> bool:
    held = held_by(process, task)
    return held is not None and held.role is Role.RUNNING


def _check_counts(world: StreamsWorld, task: Task) -> None:
    """Check that the state of the owner has every record."""
    owners = world.books.owners(task, Role.RUNNING)
    book, end = world.books.book(task), world.topics.end(input_of(task))
    if task.sub_topology or not owners or book.is_tainted:
        return
    held = held_by(owners[0], task)
    assert held is not None
    for key in range(len(KEYS)):
        now = counted(stores_of(held), key, 0, end)
        if b"\0" in now:
            world.fail("T1", f"{task} has not counted record {now.index(0) * len(KEYS) + key}")
