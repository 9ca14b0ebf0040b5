"""The refiner: which part of a target to grant now, and which members learn meanwhile.

A task without an owner moves at once. If its owner stays, a task moves only to a member that is
ready for it: the owner gives it up in this rebalance and the next one grants it. Only a leaving
member past its deadline gives up tasks for which no member is ready.
"""

from __future__ import annotations

from collections import Counter

from kohort.streams.assignment.situation import Current, Leaving, Readiness, Target, Transition
from kohort.streams.assignment.tasks import Task


def refine(
    target: Target, current: Current, readiness: Readiness, leaving: Leaving, budget: int | None
) -> Transition:
    """Return grants and learners until the next rebalance.

    Args:
        target: The final place of each task.
        current: Which member has which tasks.
        readiness: The members' lags with tasks that they do not process.
        leaving: Members that are leaving.
        budget: Maximum number of tasks learned at once; None: unlimited. A standby that becomes a
            learner does not count.
    """
    grants: dict[Task, str] = {}
    learners: dict[Task, str] = {}
    waiting: list[tuple[Task, str]] = []
    owners, contested, stateless = current.owner, current.contested, target.stateless
    for task, goal in target.active.items():
        owner = owners.get(task)
        if owner == goal:
            grants[task] = goal
        elif task[0] in stateless:
            # KIP-415 and KIP-429: the owner first gives it up, the next rebalance grants it
            if owner is None and task not in contested:
                grants[task] = goal
        elif owner is None and task in contested:
            _keep_learner(task, current, learners)
        elif owner is None:
            grants[task] = _at_once(task, goal, current, readiness, leaving)
            if grants[task] != goal and readiness.is_able(task, goal):
                waiting.append((task, goal))
        elif readiness.is_ready(task, goal) or owner in leaving.overdue:
            learners[task] = goal  # it continues to learn until the owner has given up the task
        else:
            grants[task] = owner
            if readiness.is_able(task, goal):
                waiting.append((task, goal))
    if budget is not None:
        _sort(waiting, grants, target, leaving)
    _begin(waiting, learners, current, budget)
    return Transition(grants, learners)


def _keep_learner(task: Task, current: Current, learners: dict[Task, str]) -> None:
    learner = current.learner.get(task)
    if learner is not None:
        learners[task] = learner


def _at_once(
    task: Task, goal: str, current: Current, readiness: Readiness, leaving: Leaving
) -> str:
    """Return the member to process a task that has no owner.

    In this order: a ready learner, the member that gave it up for this rebalance, a member with a
    ready standby, the learner, the member with the most state, or else its target.
    """
    learner, previous = current.learner.get(task), current.previous.get(task)
    stays = [each for each in readiness.holders(task) if each not in leaving.members]
    ready = [each for each in stays if readiness.is_ready(task, each)]
    if learner in ready and learner is not None:
        return learner
    if previous is not None and previous not in leaving.overdue:
        return previous
    if ready:
        return ready[0]
    if learner is not None and learner not in leaving.members:
        return learner
    return stays[0] if stays else goal


def _begin(
    waiting: list[tuple[Task, str]],
    learners: dict[Task, str],
    current: Current,
    budget: int | None,
) -> None:
    """Choose learners: current ones, those with a standby, and others within the budget.

    The budget is spent in the order of `waiting`.
    """
    fresh: list[tuple[Task, str]] = []
    for task, goal in waiting:
        is_learning = current.learner.get(task) == goal
        if is_learning or goal in current.standbys.get(task, ()):
            learners[task] = goal
        else:
            fresh.append((task, goal))
    if budget is not None:
        used = sum(goal not in current.standbys.get(t, ()) for t, goal in learners.items())
        fresh = fresh[: max(0, budget - used)]
    learners.update(fresh)


def _sort(
    waiting: list[tuple[Task, str]], grants: dict[Task, str], target: Target, leaving: Leaving
) -> None:
    """Sort tasks to learn: first those of leaving members, then those of the most loaded."""
    counts, workers = Counter(grants.values()), target.workers
    loads = {member: count / workers.get(member, 1) for member, count in counts.items()}

    def urgency(each: tuple[Task, str]) -> tuple[bool, float, Task]:
        owner = grants[each[0]]
        return owner not in leaving.members, -loads[owner], each[0]

    waiting.sort(key=urgency)
