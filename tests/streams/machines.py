"""Leaders' and members' machines in one group, with a coordinator of a few lines."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from immutables import Map

from kohort.group.assignors.interface import Assignment
from kohort.group.assignors.ownership import given_twice
from kohort.group.subscription import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kohort.streams.assignment.leader import (
    Elected,
    Followed,
    LeaderConfig,
    LeaderEffects,
    LeaderMachine,
    Tick,
)
from kohort.streams.assignment.member import (
    JoinStarted,
    LagMeasured,
    LeaveSoon,
    MemberInput,
    MembershipLost,
    TaskEffects,
    TaskMachine,
    TasksAssigned,
)
from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.assignment.tasks import SubTopology, Task, Topology
from kohort.types import TopicPartition

TOPOLOGY = Topology(
    [
        SubTopology(("orders", "prices")),
        SubTopology(("views",), is_stateful=False),
        SubTopology(("clicks",)),
    ]
)


@dataclass
class Process:
    """One member, with both of its machines.

    Attributes:
        name: Its member id.
        machine: What it does as a member.
        leads: What it does as leader.
        reasons: Why it asked for rebalances.
        deadline: When its leader's machine wants to be asked.
    """

    name: str
    machine: TaskMachine
    leads: LeaderMachine
    reasons: list[str] = field(default_factory=list)
    deadline: int | None = None

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions of its active tasks."""
        return TOPOLOGY.inputs(self.machine.session.active)

    def subscription(self) -> bytes:
        """What it puts into JoinGroup."""
        session = self.machine.session
        return encode_subscription(
            Subscription(
                topics=TOPOLOGY.topics,
                owned=self.owned,
                generation=session.generation,
                user_data=session.user_data,
            )
        )


class World:
    """A group on one clock."""

    def __init__(
        self, settings: LearnerSettings, partitions: dict[str, int], rng: random.Random
    ) -> None:
        self.settings = settings
        self.partitions = partitions
        self.rng = rng
        self.now = 0
        self.generation = 0
        self.attempt = 0
        self.rebalances = 0
        self.wants_rebalance = False
        self.processes: dict[str, Process] = {}
        self.plans: list[LeaderEffects] = []

    def start(self, name: str) -> Process:
        """Start a member."""
        config = LeaderConfig(topology=TOPOLOGY, settings=self.settings)
        process = Process(name, TaskMachine(TOPOLOGY), LeaderMachine(config))
        self.processes[name] = process
        self.wants_rebalance = True
        return process

    def kill(self, name: str) -> None:
        """A member is gone; the group notices."""
        del self.processes[name]
        self.wants_rebalance = True

    def put(self, name: str, event: MemberInput) -> TaskEffects:
        """Tell a member something."""
        process = self.processes[name]
        effects = process.machine.decide(event, self.now)
        process.machine.install(effects)
        if effects.rejoin:
            process.reasons.append(effects.rejoin)
            self.wants_rebalance = True
        if effects.is_over:
            self.kill(name)
        return effects

    def lose(self, name: str) -> None:
        """A member misses a rebalance and is let in again."""
        self.put(name, MembershipLost())
        self.wants_rebalance = True

    def leave_soon(self, name: str) -> None:
        """Tell a member to leave."""
        self.put(name, LeaveSoon())

    def learn(self, name: str, lag: int = 0) -> None:
        """Have a member catch up with all that it follows."""
        followed = self.processes[name].machine.session.lags
        self.put(name, LagMeasured(Map(dict.fromkeys(followed, lag))))

    def tick(self) -> None:
        """Ask leaders' machines whether something is due."""
        for process in self.processes.values():
            effects = process.leads.decide(Tick(), self.now)
            self._install(process, effects)

    def _install(self, process: Process, effects: LeaderEffects) -> None:
        process.leads.install(effects)
        process.deadline = effects.deadline
        if effects.rejoin:
            process.reasons.append(effects.rejoin)
            self.wants_rebalance = True

    def rebalance(self, dies: str = "") -> None:
        """One rebalance; a member may die when all have joined and nobody has been answered."""
        self.wants_rebalance = False
        self.rebalances += 1
        self.attempt += 1
        for name in self.processes:
            self.put(name, JoinStarted(self.attempt))
        said = {n: decode_subscription(p.subscription()) for n, p in self.processes.items()}
        if dies in self.processes and len(self.processes) > 1:
            self.kill(dies)
        leader = self.processes[self.rng.choice(sorted(self.processes))]
        for process in self.processes.values():
            if process is not leader:
                self._install(process, process.leads.decide(Followed(), self.now))
        effects = leader.leads.decide(Elected(Map(said), Map(self.partitions)), self.now)
        self._install(leader, effects)
        self.plans.append(effects)
        self.generation += 1
        assert effects.assignments is not None
        self._check(said, effects.assignments)
        self._answer(effects.assignments)

    def _check(self, said: dict[str, Subscription], assignments: Map[str, Assignment]) -> None:
        """Check what the cooperative protocol demands: nothing moves that is owned."""
        given = {name: each.partitions for name, each in assignments.items()}
        assert given_twice(given) is None
        owner = {p: name for name, each in said.items() for p in each.owned}
        for name, partitions in given.items():
            assert all(owner.get(p, name) == name for p in partitions)

    def _answer(self, assignments: Map[str, Assignment]) -> None:
        for name, process in [*self.processes.items()]:
            data = encode_assignment(assignments[name].partitions, assignments[name].user_data)
            partitions, user_data = decode_assignment(data)
            before = process.owned
            self.put(name, TasksAssigned(self.generation, partitions, user_data or b""))
            if before - partitions:
                self.wants_rebalance = True
        active = [t for p in self.processes.values() for t in p.machine.session.active]
        assert len(active) == len(set(active))

    def settle(self, most: int = 300) -> None:
        """Let all learn, and rebalance whenever somebody asks, until nobody does."""
        for _ in range(most):
            if self.wants_rebalance:
                self.rebalance()
            for name in [*self.processes]:
                if name in self.processes:
                    self.learn(name)
            if not self.wants_rebalance:
                return
        raise AssertionError(f"{most} rebalances did not settle it")

    def active(self) -> dict[str, frozenset[Task]]:
        """Return the active tasks of each member."""
        return {name: each.machine.session.active for name, each in self.processes.items()}
