"""Random histories of groups: what holds after every rebalance, and where all of them end."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kohort.streams.assignment.plan import Plan, situation
from kohort.streams.assignment.settings import Handover, LearnerSettings, Rollout
from kohort.streams.assignment.target import assign, band
from kohort.streams.assignment.tasks import Task
from tests.streams.group import FAR, Group, tasks

TIMEOUT_MS = 1_000
RACKS = ("r1", "r2", "r3")


class History:
    """A group to which things happen, and what is checked after each rebalance."""

    def __init__(self, rng: random.Random, handover: Handover) -> None:
        self.rng = rng
        self.born = 0
        self.group = Group(
            [*tasks(rng.randint(0, 14)), *tasks(rng.randint(0, 6), sub_topology=1)],
            LearnerSettings(
                handover=handover,
                rollout=rng.choice([*Rollout, Rollout.BALANCED]),
                max_warmup_learners=rng.choice([1, 2, 5, None]),
                num_standby_replicas=rng.choice([0, 0, 1, 2]),
                stream_imbalance_percentage=rng.choice([0, 0.2, 0.5]),
                scale_down_timeout_ms=rng.choice([None, TIMEOUT_MS]),
                rack_aware_assignment_tags=rng.choice([(), ("rack",)]),
            ),
            stateless=[1],
        )
        self.arrive()

    def arrive(self) -> None:
        self.born += 1
        self.group.add(f"m{self.born:02}").tags = {"rack": self.rng.choice(RACKS)}

    def anybody(self) -> str | None:
        return self.rng.choice(sorted(self.group.members)) if self.group.members else None

    def happen(self) -> None:
        """Something happens to somebody; any of them may lead, and may die."""
        name = self.anybody()
        if name is None or self.rng.random() < 0.25:
            self.arrive()
            return
        member = self.group.members[name]
        match self.rng.randrange(6):
            case 0:
                del self.group.members[name]
            case 1:
                member.leaving_ms = 0
            case 2:
                member.leaving_ms = TIMEOUT_MS if member.leaving_ms is not None else None
            case 3:
                self.group.learn(name)
            case 4:
                member.dormant.update(
                    dict.fromkeys(member.dormant, self.rng.choice([0, FAR, None]))
                )
            case _:
                self.lose_state(name)

    def lose_state(self, name: str) -> None:
        """A member dies and is there again at once, as a new one."""
        del self.group.members[name]
        self.arrive()

    def rebalance(self) -> None:
        """Rebalance and check; in the middle of it a member may die."""
        group = self.group
        group.join()
        for name in [*group.members]:
            if self.rng.random() < 0.1 and len(group.members) > 1:
                del group.members[name]
        owners = {t: n for n, m in group.members.items() for t in m.active}
        before = {t: n for n, m in group.members.items() for t in m.active | m.revoked}
        ready = {
            (t, n)
            for n, m in group.members.items()
            for held in (m.dormant, m.standbys, m.learning)
            for t, lag in held.items()
            if lag is not None and lag <= group.settings.acceptable_recovery_lag
        }
        overdue = {
            n
            for n, m in group.members.items()
            if m.leaving_ms == TIMEOUT_MS
            and group.settings.scale_down_timeout_ms is not None
            and group.settings.rollout >= Rollout.SCALE_DOWN
        }
        plan = group.lead()
        check_plan(group, plan, owners, before, ready, overdue)
        group.sync(plan)
        active = [t for m in group.members.values() for t in m.active]
        assert len(active) == len(set(active))
        group.shut_down()


def check_plan(
    group: Group,
    plan: Plan,
    owners: dict[Task, str],
    before: dict[Task, str],
    ready: set[tuple[Task, str]],
    overdue: set[str],
) -> None:
    """Check what holds after every rebalance."""
    grants, learners = plan.transition.grants, plan.transition.learners
    stays = {n for n, m in group.members.items() if n not in overdue}
    for task in group.tasks:
        owner, granted = owners.get(task), grants.get(task)
        # one active owner, but for a task that its owner gives up now
        if granted is None and stays:
            assert owner is not None
        if owner is not None:
            assert granted in (owner, None)
        # nothing is taken from a live owner for a member that is not ready
        had = before.get(task)
        if task[0] == 0 and had is not None and had not in overdue and granted != had:
            goal = granted if granted is not None else plan.target.active[task]
            assert (task, goal) in ready
        # a learner learns what is active elsewhere, or is given up for it
        if task in learners:
            assert task[0] == 0
            assert granted != learners[task]
            assert granted is not None or owner is not None
    check_budget(group, plan)
    for task, found in plan.standbys.items():
        assert len(set(found)) == len(found) <= group.settings.num_standby_replicas
        assert not {grants.get(task), learners.get(task)} & set(found)


def check_budget(group: Group, plan: Plan) -> None:
    """Check that nothing begins to be learned beyond the budget."""
    limit = group.settings.budget
    counted = {
        t: t not in group.members[n].learning
        for t, n in plan.transition.learners.items()
        if t in plan.transition.grants and t not in group.members[n].standbys
    }
    if limit is not None and any(counted.values()):
        assert len(counted) <= limit


def check_settled(group: Group) -> None:
    """Check that a group is balanced, and does nothing more."""
    stays = group.members
    if group.settings.rollout >= Rollout.SCALE_DOWN:
        stays = {n: m for n, m in stays.items() if m.leaving_ms is None}
    for number in (0, 1):
        every = [t for t in group.tasks if t[0] == number]
        loads = [sum(t[0] == number for t in m.active) for m in stays.values()]
        assert sum(loads) == len(every)
        if group.settings.rollout == Rollout.BALANCED or number == 1:
            low, high = band(len(every), len(stays), group.settings.percentage)
            assert low <= min(loads) <= max(loads) <= high
    assert not any(m.learning for m in group.members.values())
    replicas = min(group.settings.num_standby_replicas, len(stays) - 1)
    copies = Counter(t for m in group.members.values() for t in m.standbys)
    assert all(copies[t] == replicas for t in group.tasks if t[0] == 0)
    view = group.view()
    group.rebalance()
    assert group.view() == view


@pytest.mark.parametrize("handover", ["until-grant", "draft"])
@settings(max_examples=250, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_history_keeps_the_rules_and_ends_balanced(handover: Handover, seed: int) -> None:
    rng = random.Random(seed)
    history = History(rng, handover)
    for _ in range(rng.randint(1, 12)):
        for _ in range(rng.randint(0, 3)):
            history.happen()
        history.rebalance()
    if not history.group.members:
        history.arrive()
    if all(m.leaving_ms is not None for m in history.group.members.values()):
        history.arrive()
    history.group.settle()
    check_settled(history.group)


def fewest_moves(owner: list[int], members: int, low: int, high: int) -> int:
    """Return how many tasks have to move, by looking at all ways to place them."""
    fewest = len(owner)
    for places in product(range(members), repeat=len(owner)):
        loads = Counter(places)
        if all(low <= loads[n] <= high for n in range(members)):
            fewest = min(fewest, sum(a != b for a, b in zip(places, owner, strict=True)))
    return fewest


@settings(max_examples=150, deadline=None)
@example(owner=[0, 0, 1, -1], members=3, percentage=0, lags={(3, 1): 0})
@given(
    owner=st.lists(st.integers(-1, 3), min_size=1, max_size=6),
    members=st.integers(1, 4),
    percentage=st.sampled_from([0, 0.2, 0.5, 1]),
    lags=st.dictionaries(
        st.tuples(st.integers(0, 5), st.integers(0, 3)), st.sampled_from([0, 9, FAR, None])
    ),
)
def test_no_target_moves_more_than_it_must(
    owner: list[int],
    members: int,
    percentage: float,
    lags: dict[tuple[int, int], int | None],
) -> None:
    """Against all placements within the band; state elsewhere must not make anything move."""
    every = tasks(len(owner))
    owner = [each if each < members else -1 for each in owner]
    agreed = LearnerSettings(stream_imbalance_percentage=percentage)
    group = Group(every, agreed)
    for number in range(members):
        member = group.add(
            f"m{number}", [t for t, o in zip(every, owner, strict=True) if o == number]
        )
        member.dormant = {
            each: lag
            for (task, holder), lag in lags.items()
            if holder == number and task < len(every) and (each := every[task]) not in member.active
        }
    joined = {name: member.joined() for name, member in group.members.items()}
    target = assign(situation(every, frozenset(), joined, agreed), agreed)
    moved = sum(target.active[t] != f"m{owner[n]}" for n, t in enumerate(every))
    low, high = band(len(every), members, percentage)
    loads = Counter(target.active.values())
    assert all(low <= loads[f"m{n}"] <= high for n in range(members))
    assert moved == fewest_moves(owner, members, low, high)
