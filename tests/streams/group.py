"""A group of learner tasks as tests drive it: members, what they have, and one rebalance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from immutables import Map

from kohort.streams.assignment.metadata import Claim, decode_claim, encode_claim
from kohort.streams.assignment.plan import Joined, Plan, make_plan, situation
from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.assignment.tasks import Task

FAR = 1_000_000
"""A lag that is not within any bound of these tests."""


def tasks(count: int, sub_topology: int = 0) -> list[Task]:
    """Return so many tasks."""
    return [Task(sub_topology, number) for number in range(count)]


@dataclass
class Member:
    """One member.

    Attributes:
        active: What it processes.
        learning: What it learns, and how far it is behind.
        standbys: The same of standbys.
        dormant: The same of what it has on disk.
        being_learned: Which of its tasks are being learned.
        revoked: What it gave up for the rebalance that is under way.
        generation: The last generation it was in.
        leaving_ms: For how long it has been leaving.
        tags: Its client tags.
        unable: What it could not learn or follow.
    """

    active: set[Task] = field(default_factory=set)
    learning: dict[Task, int | None] = field(default_factory=dict)
    standbys: dict[Task, int | None] = field(default_factory=dict)
    dormant: dict[Task, int | None] = field(default_factory=dict)
    being_learned: set[Task] = field(default_factory=set)
    revoked: set[Task] = field(default_factory=set)
    generation: int = -1
    leaving_ms: int | None = None
    tags: dict[str, str] = field(default_factory=dict)
    unable: set[Task] = field(default_factory=set)

    def joined(self) -> Joined:
        """Return what it says, by way of bytes."""
        claim = Claim(
            generation=self.generation,
            learning=Map(self.learning),
            standbys=Map(self.standbys),
            dormant=Map(self.dormant),
            revoked=frozenset(self.revoked),
            leaving_ms=self.leaving_ms,
            client_tags=Map(self.tags),
            unable=frozenset(self.unable),
        )
        return Joined(frozenset(self.active), decode_claim(encode_claim(claim)))

    def lag(self, task: Task) -> int | None:
        """Return how far it is behind with a task that it is to follow."""
        for held in (self.learning, self.standbys, self.dormant):
            if task in held:
                return held[task]
        return 0 if task in self.active | self.revoked else FAR


class Group:
    """A group; its members know only what the last rebalance told them."""

    def __init__(
        self, every: Iterable[Task], settings: LearnerSettings, stateless: Iterable[int] = ()
    ) -> None:
        self.tasks = sorted(every)
        self.settings = settings
        self.stateless = frozenset(stateless)
        self.members: dict[str, Member] = {}
        self.generation = 0
        self.plan: Plan | None = None

    def add(self, name: str, active: Iterable[Task] = (), generation: int | None = None) -> Member:
        """Add a member; one that has tasks was there before."""
        found = set(active)
        if generation is None:
            generation = self.generation if found else -1
        member = self.members[name] = Member(active=found, generation=generation)
        return member

    def join(self) -> None:
        """Have the members join: in the mode of the draft they give up what is being learned."""
        if self.settings.handover == "draft":
            for member in self.members.values():
                member.revoked = member.active & member.being_learned
                member.active -= member.revoked

    def lead(
        self, *, overdue: frozenset[str] = frozenset(), newcomers: frozenset[str] | None = None
    ) -> Plan:
        """Have whoever leads make a plan; it knows nothing but what the members say."""
        joined = {name: member.joined() for name, member in self.members.items()}
        found = situation(
            self.tasks,
            self.stateless,
            joined,
            self.settings,
            overdue=overdue,
            newcomers=newcomers,
        )
        return make_plan(found, self.settings)

    def sync(self, plan: Plan) -> None:
        """Have the members take what the plan gives them."""
        self.generation += 1
        self.plan = plan
        grants, learners = plan.transition.grants, plan.transition.learners
        for name, member in self.members.items():
            had = member.active | member.revoked
            lags = {t: member.lag(t) for t in {*had, *member.learning, *member.standbys}}
            lags.update(member.dormant)
            member.active = {t for t, m in grants.items() if m == name}
            learning = {t for t, m in learners.items() if m == name}
            standbys = {t for t, found in plan.standbys.items() if name in found}
            member.learning = {t: lags.get(t, FAR) for t in learning}
            member.standbys = {t: lags.get(t, FAR) for t in standbys}
            member.dormant = {
                t: lag
                for t, lag in lags.items()
                if t not in member.active | learning | standbys and t[0] not in self.stateless
            }
            member.being_learned = {t for t in member.active if t in learners}
            member.revoked = set()
            member.generation = self.generation

    def rebalance(self, **known: frozenset[str]) -> Plan:
        """Join, lead and sync."""
        self.join()
        plan = self.lead(**known)
        self.sync(plan)
        return plan

    def learn(self, *names: str) -> None:
        """Have members (all, if none is named) catch up with all that they follow."""
        for name in names or self.members:
            member = self.members[name]
            for held in (member.learning, member.standbys):
                held.update(dict.fromkeys(held, 0))

    def settle(self, most: int = 300) -> int:
        """Rebalance until nothing changes, everybody learning meanwhile; return how often."""
        for count in range(most):
            before = self.view()
            self.learn()
            self.rebalance()
            self.shut_down()
            if self.view() == before:
                return count
        raise AssertionError(f"{most} rebalances did not settle it")

    def shut_down(self) -> None:
        """Have members that leave go once they have nothing to do."""
        for name, member in [*self.members.items()]:
            if member.leaving_ms is not None and not member.active:
                del self.members[name]

    def view(self) -> dict[str, tuple[frozenset[Task], frozenset[Task], frozenset[Task]]]:
        """Return what each member has: active, learning, standbys."""
        return {
            name: (frozenset(m.active), frozenset(m.learning), frozenset(m.standbys))
            for name, m in self.members.items()
        }

    def loads(self) -> list[int]:
        """Return the numbers of active tasks."""
        return sorted(len(member.active) for member in self.members.values())


def exact_group(count: int = 6, stateless: tuple[int, ...] = (), **chosen: object) -> Group:
    """Return a group that is to be balanced exactly, with no limit on learners."""
    agreed = {"max_warmup_learners": None, "stream_imbalance_percentage": 0, **chosen}
    return Group(tasks(count), LearnerSettings(**agreed), stateless)  # type: ignore[arg-type]  # names and values of settings
