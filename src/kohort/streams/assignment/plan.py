"""One rebalance at the leader: from the members' claims to their assignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from immutables import Map
from msgspec import Struct, field

from kohort.errors import RemoteProtocolError
from kohort.group.assignors.interface import Assignment
from kohort.group.subscription import NO_GENERATION, Subscription
from kohort.streams.assignment.metadata import (
    Claim,
    Instructions,
    Lags,
    decode_claim,
    encode_instructions,
)
from kohort.streams.assignment.refiner import refine
from kohort.streams.assignment.settings import LearnerSettings, Rollout
from kohort.streams.assignment.situation import (
    Current,
    Leaving,
    Readiness,
    Situation,
    Target,
    Transition,
)
from kohort.streams.assignment.standbys import place_standbys
from kohort.streams.assignment.target import assign
from kohort.streams.assignment.tasks import Task, Topology
from kohort.values import replace

ASSIGNOR = "kohort-learner"
"""The protocol name of all members, within protocol type `consumer`."""


class Joined(Struct, frozen=True):
    """A member with its claim.

    Attributes:
        owned: Its active tasks.
        claim: Its claim.
    """

    owned: frozenset[Task] = frozenset()
    claim: Claim = Claim()


class Plan(Struct, frozen=True, kw_only=True):
    """The result of a rebalance.

    Attributes:
        target: The final place of each task.
        transition: Grants and learners until the next rebalance.
        standbys: The members that have a standby of each task.
    """

    target: Target
    transition: Transition
    standbys: Mapping[Task, tuple[str, ...]] = field(default_factory=dict)


def read_joined(topology: Topology, subscriptions: Mapping[str, Subscription]) -> dict[str, Joined]:
    """Decode the members' claims, by member id.

    Invalid user data affects only its own member, which keeps its tasks and counts as having no
    other state.
    """
    return {member: _joined(topology, each) for member, each in subscriptions.items()}


def _joined(topology: Topology, subscription: Subscription) -> Joined:
    try:
        claim = decode_claim(subscription.user_data or b"")
    except RemoteProtocolError:
        claim = Claim(generation=subscription.generation)
    return Joined(frozenset(topology.tasks_of(subscription.owned)), claim)


def situation(
    tasks: Iterable[Task],
    stateless: frozenset[int],
    members: Mapping[str, Joined],
    settings: LearnerSettings,
    *,
    overdue: frozenset[str] = frozenset(),
    newcomers: frozenset[str] | None = None,
) -> Situation:
    """Return which member has which tasks, with contradictions resolved.

    Args:
        tasks: All tasks, in order.
        stateless: Numbers of the sub-topologies without state.
        members: The members as they joined.
        settings: The settings of the group.
        overdue: Members past their deadline to leave, besides those whose claim shows it.
        newcomers: Members that were not in the last generation; None: decided by their claims.
    """
    known = tuple(tasks)
    members = {member: _without_failures(each) for member, each in members.items()}
    claims = {member: each.claim for member, each in members.items()}
    leaving = _leaving(claims, overdue, settings)
    if newcomers is None:
        newcomers = frozenset(m for m, each in claims.items() if each.generation == NO_GENERATION)
    readiness = _readiness(claims, settings)
    return Situation(
        tasks=known,
        stateless=stateless,
        members=tuple(sorted(members)),
        newcomers=newcomers,
        leaving=leaving,
        current=_current(known, members, readiness, leaving),
        readiness=readiness,
        client_tags={member: each.client_tags for member, each in claims.items()},
        workers={member: each.workers for member, each in claims.items() if each.workers > 1},
    )


def _without_failures(joined: Joined) -> Joined:
    """Return a member without the state of tasks that it failed to learn or follow."""
    claim = joined.claim
    if not claim.unable:
        return joined

    def kept(lags: Lags) -> Lags:
        return Map({task: lag for task, lag in lags.items() if task not in claim.unable})

    learning, standbys = kept(claim.learning), kept(claim.standbys)
    dormant = kept(claim.dormant)
    found = replace(claim, learning=learning, standbys=standbys, dormant=dormant)
    return replace(joined, claim=found)


def make_plan(found: Situation, settings: LearnerSettings) -> Plan:
    """Return the result of a rebalance."""
    target = assign(found, settings)
    transition = refine(target, found.current, found.readiness, found.leaving, settings.budget)
    standbys = place_standbys(found, target, transition, settings)
    return Plan(target=target, transition=transition, standbys=standbys)


def is_settled_but_not_balanced(found: Situation, plan: Plan, settings: LearnerSettings) -> bool:
    """Whether a plan lets no member wait, and another plan would move tasks.

    Tasks being learned stay where they are, even above the band. Once all of them are granted, no
    member has a reason to ask for the rebalance that balances the loads.
    """
    transition = plan.transition
    if transition.learners or len(transition.grants) < len(plan.target.active):
        return False
    current = Current(owner=transition.grants)
    after = replace(
        found,
        newcomers=frozenset(),
        current=current,
        readiness=Readiness(unable=found.readiness.unable),
    )
    return assign(after, settings).active != transition.grants


def assignments(
    plan: Plan, members: Iterable[str], topology: Topology, settings: LearnerSettings
) -> dict[str, Assignment]:
    """Return the assignment of each member."""
    transition = plan.transition
    active = _by_member(members, transition.grants.items())
    learning = _by_member(active, transition.learners.items())
    pairs = ((task, member) for task, found in plan.standbys.items() for member in found)
    standbys = _by_member(active, pairs)
    return {
        member: Assignment(
            topology.inputs(tasks),
            encode_instructions(
                Instructions(
                    learning=frozenset(learning[member]),
                    standbys=frozenset(standbys[member]),
                    being_learned=frozenset(t for t in tasks if t in transition.learners),
                    acceptable_recovery_lag=settings.acceptable_recovery_lag,
                    is_partial=settings.is_partial,
                    is_draft=settings.handover == "draft",
                )
            ),
        )
        for member, tasks in active.items()
    }


def _by_member(members: Iterable[str], pairs: Iterable[tuple[Task, str]]) -> dict[str, list[Task]]:
    found: dict[str, list[Task]] = {member: [] for member in members}
    for task, member in pairs:
        found[member].append(task)
    return found


def _leaving(
    claims: Mapping[str, Claim], overdue: frozenset[str], settings: LearnerSettings
) -> Leaving:
    if settings.rollout < Rollout.SCALE_DOWN:
        return Leaving()
    since = {m: each.leaving_ms for m, each in claims.items() if each.leaving_ms is not None}
    limit = settings.scale_down_timeout_ms
    late = {m for m, ms in since.items() if limit is not None and ms >= limit}
    return Leaving(frozenset(since), frozenset(late | (overdue & since.keys())))


def _readiness(claims: Mapping[str, Claim], settings: LearnerSettings) -> Readiness:
    lags: dict[Task, dict[str, int | None]] = {}
    for member, claim in claims.items():
        for held in (claim.dormant, claim.standbys, claim.learning):
            for task, lag in held.items():
                lags.setdefault(task, {})[member] = lag
    unable = {member: each.unable for member, each in claims.items() if each.unable}
    return Readiness(lags=lags, acceptable=settings.acceptable_recovery_lag, unable=unable)


def _current(
    tasks: tuple[Task, ...],
    members: Mapping[str, Joined],
    readiness: Readiness,
    leaving: Leaving,
) -> Current:
    exists = set(tasks).__contains__
    owner, contested = _settled({m: (j.owned, j.claim.generation) for m, j in members.items()})
    previous, _ = _settled({m: (j.claim.revoked, j.claim.generation) for m, j in members.items()})
    learner: dict[Task, str] = {}
    standbys: dict[Task, tuple[str, ...]] = {}
    for member in sorted(members):
        claim = members[member].claim
        for task in filter(exists, claim.learning):
            if owner.get(task) != member:
                learner[task] = _better(task, learner.get(task), member, readiness, leaving)
        for task in filter(exists, claim.standbys):
            standbys[task] = (*standbys.get(task, ()), member)
    return Current(
        owner={task: member for task, member in owner.items() if exists(task)},
        previous={task: each for task, each in previous.items() if task not in owner},
        learner=learner,
        standbys=standbys,
        contested=contested,
    )


def _settled(
    claims: Mapping[str, tuple[frozenset[Task], int]],
) -> tuple[dict[Task, str], frozenset[Task]]:
    """Return the owner of each task, and the tasks that others also claim (KIP-792).

    The claim with the highest generation counts; if two members claim it, neither counts.
    """
    best: dict[Task, tuple[int, str | None]] = {}
    contested: set[Task] = set()
    for member, (tasks, generation) in claims.items():
        for task in tasks:
            known = best.get(task)
            if known is not None:
                contested.add(task)
            if known is None or generation > known[0]:
                best[task] = generation, member
            elif generation == known[0]:
                best[task] = generation, None
    owners = {task: member for task, (_, member) in best.items() if member is not None}
    return owners, frozenset(contested)


def _better(task: Task, one: str | None, other: str, readiness: Readiness, leaving: Leaving) -> str:
    """Return which of two members continues to learn: prefer one that stays, then smaller lag."""
    if one is None:
        return other
    holders = readiness.holders(task)
    return min(one, other, key=lambda m: (m in leaving.members, holders.index(m)))
