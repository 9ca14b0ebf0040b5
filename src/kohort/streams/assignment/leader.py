"""The state machine of a leader: it makes the plans, and ends departures that take too long.

It remembers only the members' claims from the last rebalance, and each leaving member's deadline;
another leader can compute these from the claims.
"""

from __future__ import annotations

from immutables import Map
from msgspec import Struct

from kohort.errors import LocalProtocolError
from kohort.group.assignors.interface import Assignment
from kohort.group.machine import Row, State, Table, row
from kohort.group.subscription import Subscription
from kohort.streams.assignment.plan import (
    Joined,
    Plan,
    assignments,
    is_settled_but_not_balanced,
    make_plan,
    read_joined,
    situation,
)
from kohort.streams.assignment.settings import LearnerSettings, Rollout
from kohort.streams.assignment.tasks import Topology
from kohort.values import replace


class OtherTopicsError(LocalProtocolError):
    """A member subscribes to other topics than the leader, so it runs a different program."""


class LeaderState(State):
    """The role of a member in the group."""

    FOLLOWING = "another member leads, or there is none"
    LEADING = "it made the last plan"
    ASKING = "it made the last plan, and has asked for a rebalance"


class Elected(Struct, frozen=True):
    """All members have joined, and the coordinator chose this one to assign tasks.

    Attributes:
        subscriptions: The members' subscriptions, fixed for this rebalance.
        partitions: The number of partitions of each existing topic.
    """

    subscriptions: Map[str, Subscription]
    partitions: Map[str, int]


class Followed(Struct, frozen=True):
    """Another member was chosen, or this one has left the group."""


class Tick(Struct, frozen=True):
    """Time has passed."""


class LeaderConfig(Struct, frozen=True, kw_only=True):
    """The configuration of a leader.

    Attributes:
        topology: The topology of the application.
        settings: The settings of the group.
    """

    topology: Topology
    settings: LearnerSettings


class LeaderSession(Struct, frozen=True):
    """A leader's memory; immutable.

    Attributes:
        state: Its role in the group.
        due: The deadline of each leaving member.
    """

    state: LeaderState = LeaderState.FOLLOWING
    due: Map[str, int] = Map()


class LeaderEffects(Struct, frozen=True, kw_only=True):
    """The effects of an input.

    Attributes:
        session: The new session.
        assignments: The assignment of each member; None: no assignments.
        plan: The plan behind the assignments, for display.
        rejoin: Reason to ask for a rebalance (KIP-800) after sending assignments; empty: do not
            ask.
        deadline: When `Tick` is due; None: never.
    """

    session: LeaderSession
    assignments: Map[str, Assignment] | None = None
    plan: Plan | None = None
    rejoin: str = ""
    deadline: int | None = None


class LeaderDecision(Struct, kw_only=True):
    """The changes made by one input while its handler runs."""

    config: LeaderConfig
    session: LeaderSession
    now: int
    assignments: Map[str, Assignment] | None = None
    plan: Plan | None = None
    rejoin: str = ""

    @property
    def state(self) -> LeaderState:
        """The member's role in the group."""
        return self.session.state

    def effects(self) -> LeaderEffects:
        """Return the effects of the input."""
        session = self.session
        waits = session.due.values() if session.state is LeaderState.LEADING else ()
        return LeaderEffects(
            session=session,
            assignments=self.assignments,
            plan=self.plan,
            rejoin=self.rejoin,
            deadline=min((due for due in waits if due > self.now), default=None),
        )


class LeaderMachine:
    """A member in its role as leader.

    Attributes:
        session: Its memory; the shell installs the session of each result.
    """

    def __init__(self, config: LeaderConfig) -> None:
        """Create a machine that does not lead."""
        self.config = config
        self.session = LeaderSession()

    def install(self, effects: LeaderEffects) -> None:
        """Adopt the session of a decision."""
        self.session = effects.session

    def decide(self, event: Elected | Followed | Tick, now: int) -> LeaderEffects:
        """Return the effects of an input without changing anything.

        Args:
            event: What happened.
            now: Time in milliseconds from a monotonic clock.

        Raises:
            OtherTopicsError: Members subscribe to other topics than the topology has.
            LocalProtocolError: The topics are not co-partitioned.
        """
        decision = LeaderDecision(config=self.config, session=self.session, now=now)
        LEADER.run(decision, type(event), event)
        return decision.effects()


def make_assignments(decision: LeaderDecision, event: Elected) -> None:
    """Make a plan from the members' subscriptions."""
    topology, settings = decision.config.topology, decision.config.settings
    _check_subscriptions(topology, event)
    tasks = topology.tasks(event.partitions)
    members = read_joined(topology, event.subscriptions)
    due = _due(decision, members)
    overdue = frozenset(member for member, at in due.items() if at <= decision.now)
    found = situation(tasks, topology.stateless, members, settings, overdue=overdue)
    decision.plan = make_plan(found, settings)
    decision.assignments = Map(assignments(decision.plan, members, topology, settings))
    decision.session = LeaderSession(LeaderState.LEADING, due)
    if is_settled_but_not_balanced(found, decision.plan, settings):
        decision.rejoin = "learned tasks are granted and loads are not balanced"
        decision.session = LeaderSession(LeaderState.ASKING, due)


def _check_subscriptions(topology: Topology, event: Elected) -> None:
    """Check that all members run one program: members refuse unknown partitions."""
    for member, each in event.subscriptions.items():
        if each.topics != topology.topics:
            odd = ", ".join(sorted(each.topics ^ topology.topics))
            raise OtherTopicsError(
                f"member {member} does not subscribe to the topics of the topology: {odd}"
            )


def _due(decision: LeaderDecision, members: dict[str, Joined]) -> Map[str, int]:
    """Return the deadline of each leaving member: the earliest known one."""
    settings, known = decision.config.settings, decision.session.due
    limit = settings.scale_down_timeout_ms
    if limit is None or settings.rollout < Rollout.SCALE_DOWN:
        return Map()
    since = {member: each.claim.leaving_ms for member, each in members.items()}
    due = {member: decision.now - ms + limit for member, ms in since.items() if ms is not None}
    return Map({member: min(at, known.get(member, at)) for member, at in due.items()})


def is_somebody_due(decision: LeaderDecision, _event: Tick) -> bool:
    """Whether a member's deadline has passed since the last plan."""
    return bool(_overdue(decision))


def _overdue(decision: LeaderDecision) -> list[str]:
    return sorted(member for member, at in decision.session.due.items() if at <= decision.now)


def ask_to_end_departures(decision: LeaderDecision, _event: Tick) -> None:
    """Ask for a rebalance that takes the tasks of members past their deadline."""
    late = ", ".join(_overdue(decision))
    limit = decision.config.settings.scale_down_timeout_ms
    decision.rejoin = f"scale_down_timeout_ms ({limit}) is over for {late}"[:REASON_MAX]
    decision.session = replace(decision.session, state=LeaderState.ASKING)


def forget(decision: LeaderDecision, _event: Followed) -> None:
    """Stop leading."""
    decision.session = LeaderSession()


def rest(_decision: LeaderDecision, _event: Tick) -> None:
    """Do nothing."""


REASON_MAX = 255
"""The length to which Kafka truncates a reason (KIP-800)."""

_EVERY = tuple(LeaderState)
_ROWS: tuple[Row[LeaderState, LeaderDecision], ...] = (
    row(
        _EVERY,
        Elected,
        make_assignments,
        to=(LeaderState.LEADING, LeaderState.ASKING),
        rule="KIP-429",
    ),
    row(_EVERY, Followed, forget, to=LeaderState.FOLLOWING),
    row(
        LeaderState.LEADING,
        Tick,
        ask_to_end_departures,
        when=is_somebody_due,
        to=LeaderState.ASKING,
        rule="KIP-429, KIP-800",
    ),
    row(_EVERY, Tick, rest),
)

LEADER: Table[LeaderState, LeaderDecision] = Table(
    "leader of learner tasks", LeaderState, _ROWS, total=(Elected, Followed, Tick)
)
