"""Standby replicas: copies of task state on members other than the active ones.

Existing standbys stay. New ones go to the former owner of a moved task, then to members that have
state of the task, then to the member with the fewest standbys. With rack-aware tags (KIP-708), the
replicas of a task are placed where their tags differ most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.assignment.situation import Situation, Target, Transition
from kohort.streams.assignment.target import band
from kohort.streams.assignment.tasks import Task


def place_standbys(
    situation: Situation, target: Target, transition: Transition, settings: LearnerSettings
) -> dict[Task, tuple[str, ...]]:
    """Return the members that have a standby of each task; tasks without one are left out.

    Args:
        situation: The state before the rebalance.
        target: The final place of each task.
        transition: Grants and learners of this rebalance.
        settings: The settings of the group.
    """
    stateful = [t for t in target.active if t[0] not in target.stateless]
    stayers = situation.leaving.stayers(situation.members)
    if not settings.num_standby_replicas or not stateful:
        return {}
    placing = _Placing(situation, transition, settings, stayers, len(stateful))
    for task in stateful:
        placing.keep(task)
    for task in stateful:
        placing.add(task, target.active[task])
    for task in stateful:
        placing.spread(task, target.active[task])
    return {task: tuple(sorted(found)) for task, found in placing.found.items() if found}


class _Placing:
    """The standby placement under construction."""

    def __init__(
        self,
        situation: Situation,
        transition: Transition,
        settings: LearnerSettings,
        stayers: tuple[str, ...],
        tasks: int,
    ) -> None:
        self.situation = situation
        self.transition = transition
        self.replicas = settings.num_standby_replicas
        replicas = min(self.replicas, max(0, len(stayers) - 1)) * tasks
        self.most = band(replicas, len(stayers), settings.percentage)[1]
        self.loads = dict.fromkeys(stayers, 0)
        self.found: dict[Task, list[str]] = {}
        keys = settings.rack_aware_assignment_tags
        self.tags = {
            member: _tags(situation.client_tags.get(member, {}), keys) for member in stayers
        }
        self.alike: dict[tuple[str | None, ...], list[tuple[int, str]]] = {}
        for member in stayers:
            self.alike.setdefault(self.tags[member], []).append((0, member))
        for heap in self.alike.values():
            heapify(heap)

    def wanted(self, task: Task) -> int:
        """Return the number of standbys that a task gets; one that became a learner counts."""
        learner = self.transition.learners.get(task)
        borrowed = learner in self.situation.current.standbys.get(task, ())
        return self.replicas - borrowed

    def barred(self, task: Task) -> set[str | None]:
        """Return the members that process or learn a task, or could not follow it."""
        owner = self.situation.current.owner.get(task)
        readiness = self.situation.readiness
        unable = (each for each in readiness.unable if not readiness.is_able(task, each))
        learner = self.transition.learners.get(task)
        return {self.transition.grants.get(task, owner), learner, *unable}

    def keep(self, task: Task) -> None:
        """Keep existing standbys."""
        barred, kept = self.barred(task), self.found.setdefault(task, [])
        for member in self.situation.current.standbys.get(task, ()):
            if len(kept) == self.wanted(task):
                break
            if member not in barred and self.loads.get(member, self.most) < self.most:
                self._put(kept, member)

    def add(self, task: Task, goal: str) -> None:
        """Add missing standbys."""
        kept, barred = self.found[task], self.barred(task)
        for member in self._with_state(task):
            if len(kept) >= self.wanted(task):
                return
            if member not in barred and member not in kept and self.loads[member] < self.most:
                self._put(kept, member)
        while len(kept) < self.wanted(task):
            best = self._best(task, goal, {*barred, *kept})
            if best is None:
                return
            self._put(kept, best)

    def spread(self, task: Task, goal: str) -> None:
        """Move standbys to members whose tags differ more from the other replicas', if possible."""
        kept, barred = self.found[task], self.barred(task)
        for _ in range(len(kept) if len(self.alike) > 1 else 0):
            worst = max(kept, key=lambda each: (self._clashes(each, task, goal), each))
            better = self._best(task, goal, {*barred, *kept}, without=worst)
            clashes = self._clashes(worst, task, goal)
            if better is None or self._clashes(better, task, goal, worst) >= clashes:
                return
            kept.remove(worst)
            self.loads[worst] -= 1
            heappush(self.alike[self.tags[worst]], (self.loads[worst], worst))
            self._put(kept, better)

    def _with_state(self, task: Task) -> Iterable[str]:
        current = self.situation.current
        previous = current.previous.get(task)
        holders = self.situation.readiness.holders(task)
        found = [previous, *holders] if previous else holders
        return [each for each in found if each in self.loads]

    def _best(self, task: Task, goal: str, taken: set[str | None], without: str = "") -> str | None:
        """Return the member whose tags differ most; on a tie, the one with the fewest standbys."""
        best: tuple[int, int, str] | None = None
        for heap in self.alike.values():
            lightest = self._lightest(heap, taken)
            if lightest is not None:
                load, member = lightest
                rank = self._clashes(member, task, goal, without), load, member
                best = rank if best is None else min(best, rank)
        return None if best is None else best[2]

    def _lightest(
        self, heap: list[tuple[int, str]], taken: set[str | None]
    ) -> tuple[int, str] | None:
        """Return the lightest member that is not taken; entries with old loads are dropped."""
        aside: list[tuple[int, str]] = []
        found = None
        while heap and found is None:
            load, member = heap[0]
            if load != self.loads[member]:
                heappop(heap)
            elif member in taken:
                aside.append(heappop(heap))
            else:
                found = heap[0]
        for each in aside:
            heappush(heap, each)
        return found

    def _clashes(self, member: str, task: Task, goal: str, without: str = "") -> int:
        """Count the tags that a member shares with other replicas of a task."""
        others = {*self.found[task], self.transition.grants.get(task, goal)} - {member, without}
        own = self.tags[member]
        return sum(
            mine is not None and mine == theirs
            for each in others
            for mine, theirs in zip(own, self.tags.get(each, ()), strict=False)
        )

    def _put(self, kept: list[str], member: str) -> None:
        kept.append(member)
        self.loads[member] += 1
        heappush(self.alike[self.tags[member]], (self.loads[member], member))


def _tags(tags: Mapping[str, str], keys: tuple[str, ...]) -> tuple[str | None, ...]:
    return tuple(tags.get(key) for key in keys)
