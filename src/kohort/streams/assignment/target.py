"""The assignor: it computes the final place of each task.

It moves as little as possible: a task stays with its owner, and with the member that learns it,
while loads are within the band. Stateful and stateless tasks are balanced separately. The assignors
of `kohort.group` do not fit because their loads are exactly even. Here any member may have any
task, so counting yields the fewest moves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from math import lcm

from kohort.streams.assignment.settings import LearnerSettings, Rollout
from kohort.streams.assignment.situation import Situation, Target
from kohort.streams.assignment.tasks import Task

_PERMILLE = 1000


def band(tasks: int, workers: int, percentage: float, own: int = 1) -> tuple[int, int]:
    """Return the minimum and maximum number of tasks of a balanced member.

    A percentage alone is often infeasible: 0.2 would allow no plan for 5 tasks on 3 members. So the
    band always includes the integers next to the mean.

    Args:
        tasks: Number of tasks.
        workers: Number of workers of all members.
        percentage: Allowed deviation from the mean (0.2 is 20 %).
        own: Number of the member's workers.
    """
    permille = round(percentage * _PERMILLE)
    share = tasks * own
    low = -(-share * (_PERMILLE - permille) // (workers * _PERMILLE))
    high = share * (_PERMILLE + permille) // (workers * _PERMILLE)
    return min(share // workers, low), max(-(-share // workers), high)


def assign(situation: Situation, settings: LearnerSettings) -> Target:
    """Return the final place of each task.

    Args:
        situation: The state of the group.
        settings: The settings of the group.
    """
    stayers = situation.leaving.stayers(situation.members)
    stateless = situation.stateless
    active: dict[Task, str] = {}
    if stayers:
        others = [0] * len(stayers)
        for is_stateful in (True, False):
            tasks = [t for t in situation.tasks if (t[0] not in stateless) is is_stateful]
            if tasks:
                sharing = _Sharing(situation, settings, stayers, tasks, others, is_stateful)
                others = sharing.share(active)
    return Target(active, stateless, situation.workers)


class _Sharing:
    """Distributes the tasks of one kind; members are numbers here."""

    def __init__(
        self,
        situation: Situation,
        settings: LearnerSettings,
        stayers: Sequence[str],
        tasks: Sequence[Task],
        others: Sequence[int],
        is_stateful: bool,
    ) -> None:
        everybody = range(len(stayers))
        self.situation = situation
        self.members = stayers
        self.others = others
        """How many tasks of the other kind each member gets; breaks ties."""
        self._weigh(len(tasks), settings.percentage)
        self.numbers = {member: number for number, member in enumerate(stayers)}
        only_newcomers = is_stateful and settings.rollout < Rollout.BALANCED
        self.takers = [
            n for n in everybody if not only_newcomers or stayers[n] in situation.newcomers
        ]
        """The members that may get tasks from an owner that stays."""
        self.kept: list[list[Task]] = [[] for _ in everybody]
        self.learned: list[list[Task]] = [[] for _ in everybody]
        """Tasks that a member learns stay with it, even above the band."""
        self.orphans: list[Task] = []
        self._keep(tasks, is_stateful)
        self.counts = [
            len(kept) + len(learned) for kept, learned in zip(self.kept, self.learned, strict=True)
        ]
        self.most = [max(high, len(n)) for high, n in zip(self.highs, self.learned, strict=True)]

    def _weigh(self, tasks: int, percentage: float) -> None:
        """Compute each member's band and task weight, which is lower with more workers."""
        workers = [self.situation.workers.get(member, 1) for member in self.members]
        total, common = sum(workers), lcm(*set(workers))
        bands = {own: band(tasks, total, percentage, own) for own in set(workers)}
        self.lows = [bands[own][0] for own in workers]
        self.highs = [bands[own][1] for own in workers]
        self.weights = [common // own for own in workers]

    def _keep(self, tasks: Sequence[Task], is_stateful: bool) -> None:
        current, number = self.situation.current, self.numbers.get
        for task in tasks:
            learner = number(current.learner.get(task, "")) if is_stateful else None
            if learner is not None:
                self.learned[learner].append(task)
                continue
            owner = number(current.owner.get(task) or current.previous.get(task, ""))
            (self.orphans if owner is None else self.kept[owner]).append(task)

    def share(self, active: dict[Task, str]) -> list[int]:
        """Put each task's member into `active`; return how many each member gets."""
        self._place_where_state_is()
        surplus, extra, room = self._quotas()
        moving = self._chosen(surplus, extra, room)
        placed = self._dealt(moving, room)
        if self.situation.readiness.unable:
            _Mending(self, placed).mend()
        for number, member in enumerate(self.members):
            for task in (*self.kept[number], *self.learned[number]):
                active[task] = member
        for task, number in placed.items():
            active[task] = self.members[number]
        return self.counts

    def _place_where_state_is(self) -> None:
        """Give tasks without an owner to members with their state, if nothing else has to move."""
        lags, readiness = self.situation.readiness.lags, self.situation.readiness
        if not lags:
            return
        surplus = sum(max(0, c - most) for c, most in zip(self.counts, self.most, strict=True))
        spare = len(self.orphans) + surplus - self._missing(self.counts)
        rest: list[Task] = []
        for task in self.orphans:
            for number in self._known(readiness.holders(task) if task in lags else ()):
                count = self.counts[number]
                low, high = self.lows[number], self.highs[number]
                if count < low or (count < high and spare > 0):
                    spare -= count >= low
                    self._give(task, number)
                    break
            else:
                rest.append(task)
        self.orphans = rest

    def _give(self, task: Task, number: int) -> None:
        self.kept[number].append(task)
        self.counts[number] += 1

    def _known(self, members: Iterable[str]) -> list[int]:
        return [self.numbers[each] for each in members if each in self.numbers]

    def _missing(self, counts: Sequence[int]) -> int:
        return sum(max(0, self.lows[n] - counts[n]) for n in self.takers)

    def _quotas(self) -> tuple[list[int], list[int], list[int]]:
        """Return the number of tasks each member gives up, above and within its band, and gets."""
        loads = list(self.counts)
        room = sum(max(0, self.highs[n] - loads[n]) for n in self.takers)
        surplus = self._taken(loads, self.most, room)
        missing = min(self._missing(loads), room) - sum(surplus) - len(self.orphans)
        least = [max(low, len(n)) for low, n in zip(self.lows, self.learned, strict=True)]
        extra = self._taken(loads, least, max(0, missing))
        gets = [0] * len(loads)
        self._fill(loads, gets, self.takers, sum(surplus) + sum(extra))
        self._fill(loads, gets, range(len(loads)), len(self.orphans))
        self.counts = loads
        return surplus, extra, gets

    def _taken(self, loads: list[int], down_to: Sequence[int], most: int) -> list[int]:
        """Take up to `most` tasks from the most loaded members; return how many from each."""
        taken = [0] * len(loads)
        weights = self.weights
        heap = [(-load * weights[n], n) for n, load in enumerate(loads) if load > down_to[n]]
        heapify(heap)
        for _ in range(most):
            if not heap:
                break
            number = heap[0][1]
            loads[number] -= 1
            taken[number] += 1
            if loads[number] > down_to[number]:
                heapreplace(heap, (-loads[number] * weights[number], number))
            else:
                heappop(heap)
        return taken

    def _fill(self, loads: list[int], gets: list[int], members: Iterable[int], count: int) -> None:
        """Give `count` tasks to the least loaded members."""
        heap = [self._fullness(loads[n], n) for n in members] if count else []
        heapify(heap)
        for _ in range(count):
            number = heap[0][-1]
            loads[number] += 1
            gets[number] += 1
            heapreplace(heap, self._fullness(loads[number], number))

    def _fullness(self, load: int, number: int) -> tuple[int, int, int, int]:
        """Return a member's sort key; members below their band come first."""
        weight = self.weights[number]
        steps = (load >= self.lows[number]) + (load >= self.highs[number])
        return steps, load * weight, self.others[number] * weight, number

    def _chosen(self, surplus: list[int], extra: list[int], room: list[int]) -> list[Task]:
        """Return the tasks that move, preferring those whose state is at a member with room.

        Of the others, a member above the band gives up its last tasks, one within it its first.
        """
        moving: list[Task] = []
        for number, (above, within) in enumerate(zip(surplus, extra, strict=True)):
            if not above + within:
                continue
            own = self.kept[number]
            known = [task for task in own if self._place(task, room) is not None]
            known = known[: above + within]
            last = len(own) - len(known) - max(0, above - len(known))
            first = within - max(0, len(known) - above)
            own = sorted(set(own).difference(known)) if known else own
            moving += [*known, *own[:first], *own[last:]]
            self.kept[number] = own[first:last]
        return moving

    def _place(self, task: Task, room: Sequence[int]) -> int | None:
        """Return a member that gets tasks and has state of this one."""
        readiness = self.situation.readiness
        if task not in readiness.lags:
            return None
        return next((n for n in self._known(readiness.holders(task)) if room[n] > 0), None)

    def _dealt(self, moving: Sequence[Task], room: list[int]) -> dict[Task, int]:
        """Return each task's new member: by state, then orphans in turn, then moves in blocks."""
        placed: dict[Task, int] = {}
        for task in (*self.orphans, *moving):
            number = self._place(task, room)
            if number is not None:
                placed[task] = number
                room[number] -= 1
        turn = deque(n for n, free in enumerate(room) if free > 0)
        for task in self.orphans:
            if task not in placed:
                number = turn.popleft()
                placed[task] = number
                room[number] -= 1
                if room[number]:
                    turn.append(number)
        block = (n for n, free in enumerate(room) for _ in range(free))
        placed.update(zip((t for t in moving if t not in placed), block, strict=True))
        return placed


class _Mending:
    """Takes tasks away from receivers that failed to learn them."""

    def __init__(self, sharing: _Sharing, placed: dict[Task, int]) -> None:
        self.sharing = sharing
        self.placed = placed
        self.owners: dict[Task, int] = {}
        """The members that stay and now process tasks that are placed elsewhere."""
        current, numbers = sharing.situation.current, sharing.numbers
        for task in placed:
            owner = current.owner.get(task) or current.previous.get(task, "")
            if owner in numbers:
                self.owners[task] = numbers[owner]

    def mend(self) -> None:
        """Swap such tasks, or give them to the least loaded member; as a last resort, keep them."""
        for task, number in list(self.placed.items()):
            if self.placed.get(task) != number or self._may(task, number):
                continue
            if not (self._swapped(task, number) or self._replaced(task, number)):
                self._given_on(task, number)

    def _may(self, task: Task, number: int) -> bool:
        """Whether a member may get a task."""
        sharing = self.sharing
        can_take = task not in self.owners or number in sharing.takers
        return can_take and sharing.situation.readiness.is_able(task, sharing.members[number])

    def _swapped(self, task: Task, number: int) -> bool:
        """Exchange the task for a task of another receiver."""
        for other, receiver in self.placed.items():
            if receiver != number and self._may(task, receiver) and self._may(other, number):
                self.placed[task], self.placed[other] = receiver, number
                return True
        return False

    def _replaced(self, task: Task, number: int) -> bool:
        """Let the owner keep the task and give up another one."""
        owner = self.owners.get(task)
        if owner is None:
            return False
        kept = self.sharing.kept[owner]
        able = self.sharing.situation.readiness.is_able
        other = next((each for each in kept if able(each, self.sharing.members[number])), None)
        if other is None:
            return False
        kept[kept.index(other)] = task
        del self.placed[task]
        self.placed[other], self.owners[other] = number, owner
        return True

    def _given_on(self, task: Task, number: int) -> None:
        """Give it to the least loaded member that may have it; on a tie its owner keeps it."""
        sharing, owner = self.sharing, self.owners.get(task)
        counts, weights = sharing.counts, sharing.weights
        able = [n for n in range(len(sharing.members)) if n == owner or self._may(task, n)]
        counts[number] -= 1
        best = min(able, key=lambda n: (counts[n] * weights[n], n != owner, n), default=number)
        counts[best] += 1
        if best == owner:
            sharing.kept[best].append(task)
            del self.placed[task]
        elif not self._exchanged(task, best):
            self.placed[task] = best

    def _exchanged(self, task: Task, number: int) -> bool:
        """Let a member keep a task that it would give up, and give its receiver this one.

        Otherwise the member would get one task for another, and the reverse in the next rebalance.
        """
        for other, receiver in self.placed.items():
            if self.owners.get(other) == number and self._may(task, receiver):
                self.sharing.kept[number].append(other)
                del self.placed[other]
                self.placed[task] = receiver
                return True
        return False
