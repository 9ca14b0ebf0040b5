"""The state machine of a member: its claim when it joins, and its requests for rebalances.

It tracks its tasks and its lag with each. The runtime restores, processes, and reports new lags at
any time; nothing here waits for a poll.
"""

from __future__ import annotations

from collections.abc import Iterable

from immutables import Map
from msgspec import Struct, field

from kohort.group.machine import Row, State, Table, row
from kohort.group.subscription import NO_GENERATION
from kohort.streams.assignment.leader import REASON_MAX
from kohort.streams.assignment.metadata import (
    Claim,
    Instructions,
    Lags,
    decode_claim,
    decode_instructions,
    encode_claim,
)
from kohort.streams.assignment.tasks import Task, Topology
from kohort.types import TopicPartition
from kohort.values import replace

_NONE: frozenset[Task] = frozenset()


class TaskMemberState(State):
    """The state of a member."""

    OUTSIDE = "not a member of the group"
    JOINING = "it has sent its claim, and waits for its tasks"
    RUNNING = "it processes and learns"
    ASKING = "the same, and it has asked for a rebalance"
    STOPPED = "it was leaving and has no more tasks"


class JoinStarted(Struct, frozen=True):
    """The client is about to join.

    Attributes:
        attempt: Number of the rebalance; the same number repeats the same claim.
    """

    attempt: int


class TasksAssigned(Struct, frozen=True):
    """The leader's plan has arrived.

    Attributes:
        generation: The new generation.
        partitions: The partitions of its active tasks.
        user_data: The leader's other instructions.
    """

    generation: int
    partitions: frozenset[TopicPartition]
    user_data: bytes


class LagMeasured(Struct, frozen=True):
    """The lags of tasks that the member learns, follows or has on disk.

    Attributes:
        lags: Offsets to the end of the changelog; 0 if the changelog is empty (KAFKA-14302), None
            if its end is unknown (KAFKA-10651).
    """

    lags: Lags


class StateRemoved(Struct, frozen=True):
    """State of tasks is no longer on disk."""

    tasks: frozenset[Task]


class FollowingFailed(Struct, frozen=True):
    """A learner or a standby has failed.

    Attributes:
        task: The task.
        reason: Its error, for display.
    """

    task: Task
    reason: str


class LeaveSoon(Struct, frozen=True):
    """The member is asked to leave the group."""


class MembershipLost(Struct, frozen=True):
    """The group continues without this member; others may already have its tasks."""


MemberInput = (
    JoinStarted
    | TasksAssigned
    | LagMeasured
    | StateRemoved
    | FollowingFailed
    | LeaveSoon
    | MembershipLost
)


class TaskSession(Struct, frozen=True, kw_only=True):
    """A member's memory; immutable.

    Attributes:
        state: Its state.
        generation: Its generation, or -1.
        active: The tasks that it processes.
        instructions: The leader's last instructions.
        lags: Its lags with the tasks that it learns or follows.
        dormant: The lags of tasks that are only on disk; None: not measured since.
        revoked: Tasks that it gave up for the current rebalance.
        unable: Tasks that it failed to learn or follow since it joined the group.
        trouble: The last error of these tasks.
        leaving_since: When it was asked to leave; None: it was not.
        has_said_so: Whether the group knows that it is leaving.
        attempt: Number of the rebalance that it is joining; -1: none yet.
        user_data: Its user data in that rebalance.
    """

    state: TaskMemberState = TaskMemberState.OUTSIDE
    generation: int = NO_GENERATION
    active: frozenset[Task] = _NONE
    instructions: Instructions = Instructions()
    lags: Lags = Map()
    dormant: Lags = Map()
    revoked: frozenset[Task] = _NONE
    unable: frozenset[Task] = _NONE
    trouble: str = ""
    leaving_since: int | None = None
    has_said_so: bool = False
    attempt: int = -1
    user_data: bytes = b""


class TaskEffects(Struct, frozen=True, kw_only=True):
    """The effects of an input; the session lists active tasks, learners and standbys.

    Attributes:
        session: The new session.
        revoke: Tasks to give up before the member joins.
        rejoin: Reason to ask for a rebalance (KIP-800); empty: do not ask.
        is_over: Whether the member must leave the group and end.
    """

    session: TaskSession
    revoke: frozenset[Task] = _NONE
    rejoin: str = ""
    is_over: bool = False


class TaskDecision(Struct, kw_only=True):
    """The changes made by one input to a member while its handler runs."""

    topology: Topology
    client_tags: Map[str, str]
    workers: int
    session: TaskSession
    now: int
    revoke: frozenset[Task] = field(default=_NONE)
    rejoin: str = ""

    @property
    def state(self) -> TaskMemberState:
        """The member's state."""
        return self.session.state

    def ask(self, reason: str) -> None:
        """Ask for a rebalance."""
        self.rejoin = reason[:REASON_MAX]
        self.session = replace(self.session, state=TaskMemberState.ASKING)


class TaskMachine:
    """One member.

    Attributes:
        session: Its memory; the shell installs the session of each result.
    """

    def __init__(
        self, topology: Topology, client_tags: Map[str, str] = Map(), workers: int = 1
    ) -> None:
        """Create a member that has not joined.

        Args:
            topology: The topology of the application.
            client_tags: Where the member runs (KIP-708).
            workers: Its number of workers.
        """
        self.topology = topology
        self.client_tags = client_tags
        self.workers = workers
        self.session = TaskSession()

    def install(self, effects: TaskEffects) -> None:
        """Adopt the session of a decision."""
        self.session = effects.session

    def decide(self, event: MemberInput, now: int) -> TaskEffects:
        """Return the effects of an input without changing anything.

        Args:
            event: What happened.
            now: Time in milliseconds from a monotonic clock.

        Raises:
            RemoteProtocolError: The leader's user data is invalid.
        """
        decision = TaskDecision(
            topology=self.topology,
            client_tags=self.client_tags,
            workers=self.workers,
            session=self.session,
            now=now,
        )
        MEMBER.run(decision, type(event), event)
        return TaskEffects(
            session=decision.session,
            revoke=decision.revoke,
            rejoin=decision.rejoin,
            is_over=decision.state is TaskMemberState.STOPPED,
        )


def say_it_again(_decision: TaskDecision, _event: JoinStarted) -> None:
    """Repeat the claim: user data does not change within an attempt."""


def is_same_attempt(decision: TaskDecision, event: JoinStarted) -> bool:
    """Whether the client only retries the same attempt."""
    return event.attempt == decision.session.attempt


def say_what_it_has(decision: TaskDecision, event: JoinStarted) -> None:
    """Fix the claim for the leader; in draft mode, give up tasks that others learn."""
    session, instructions = decision.session, decision.session.instructions
    if instructions.is_draft:
        decision.revoke = session.active & instructions.being_learned
    session = replace(
        session,
        state=TaskMemberState.JOINING,
        active=session.active - decision.revoke,
        revoked=session.revoked | decision.revoke,
        has_said_so=session.leaving_since is not None,
        attempt=event.attempt,
    )
    claim = encode_claim(_claim(decision, session))
    decision.session = replace(session, user_data=claim)


def _claim(decision: TaskDecision, session: TaskSession) -> Claim:
    since = session.leaving_since
    return Claim(
        generation=session.generation,
        learning=_lags(session, session.instructions.learning),
        standbys=_lags(session, session.instructions.standbys),
        dormant=session.dormant,
        revoked=session.revoked,
        leaving_ms=None if since is None else decision.now - since,
        client_tags=decision.client_tags,
        workers=decision.workers,
        unable=session.unable,
        trouble=session.trouble,
    )


def _lags(session: TaskSession, tasks: Iterable[Task]) -> Lags:
    return Map({task: session.lags.get(task) for task in tasks})


def take_tasks(decision: TaskDecision, event: TasksAssigned) -> None:
    """Accept the leader's assignment; a leaving member without tasks may then stop."""
    before, instructions = decision.session, decode_instructions(event.user_data)
    active = frozenset(decision.topology.tasks_of(event.partitions))
    followed = instructions.learning | instructions.standbys
    had = {**dict.fromkeys(before.dormant), **dict(before.lags)}
    # the lag of a task is 0 when it is given up, but only for a moment
    had.update(dict.fromkeys(before.active | before.revoked, 0))
    stateless = decision.topology.stateless
    dormant = {
        task: lag
        for task, lag in had.items()
        if task not in active | followed and task[0] not in stateless
    }
    decision.session = replace(
        before,
        state=TaskMemberState.RUNNING,
        generation=event.generation,
        active=active,
        instructions=instructions,
        lags=Map({task: had.get(task) for task in followed}),
        dormant=Map(dormant),
        revoked=_NONE,
        unable=before.unable - active,  # tasks that no other member can process are retried
    )
    said = decode_claim(before.user_data)
    if before.leaving_since is not None and not before.has_said_so:
        decision.ask(_LEAVING)
    elif before.leaving_since is not None and not active:
        decision.session = replace(decision.session, state=TaskMemberState.STOPPED)
    elif _learned_meanwhile(decision, said):
        decision.ask(_reason(_learned(decision.session)))
    elif late := (decision.session.unable - said.unable) & followed:
        decision.ask(_failure(late))


def _learned_meanwhile(decision: TaskDecision, said: Claim) -> bool:
    """Whether it became ready for a task after sending its claim."""
    most = decision.session.instructions.acceptable_recovery_lag
    late = [t for t in _learned(decision.session) if not _is_within(said.learning.get(t), most)]
    return bool(late) and _is_worth_asking(decision.session)


_LEAVING = "leaving soon"


def note_lags(decision: TaskDecision, event: LagMeasured) -> None:
    """Store new lags."""
    decision.session = _with_lags(decision.session, event)


def _with_lags(session: TaskSession, event: LagMeasured) -> TaskSession:
    lags, dormant = dict(session.lags), dict(session.dormant)
    for task, lag in event.lags.items():
        if task in lags:
            lags[task] = lag
        elif task in dormant:
            dormant[task] = lag
    return replace(session, lags=Map(lags), dormant=Map(dormant))


def has_learned(decision: TaskDecision, event: LagMeasured) -> bool:
    """Whether a rebalance would grant the member tasks that it has learned."""
    return _is_worth_asking(_with_lags(decision.session, event))


def _is_worth_asking(session: TaskSession) -> bool:
    learned = len(_learned(session))
    return learned > 0 and (
        session.instructions.is_partial or learned == len(session.instructions.learning)
    )


def _learned(session: TaskSession) -> list[Task]:
    most = session.instructions.acceptable_recovery_lag
    return sorted(t for t in session.instructions.learning if _is_within(session.lags.get(t), most))


def _is_within(lag: int | None, most: int) -> bool:
    return lag is not None and lag <= most


def _reason(learned: list[Task]) -> str:
    return f"learned {', '.join(map(str, learned))}"


def ask_for_what_it_learned(decision: TaskDecision, event: LagMeasured) -> None:
    """Ask once for all tasks learned so far."""
    note_lags(decision, event)
    decision.ask(_reason(_learned(decision.session)))


def has_just_failed(decision: TaskDecision, event: FollowingFailed) -> bool:
    """Whether a failure is new and concerns the plan."""
    session, task = decision.session, event.task
    is_followed = task in session.instructions.learning or task in session.instructions.standbys
    return is_followed and task not in session.unable


def ask_for_other_tasks(decision: TaskDecision, event: FollowingFailed) -> None:
    """Ask for a rebalance, so that others get the tasks that this member cannot learn or follow."""
    note_failure(decision, event)
    decision.ask(_failure({event.task}))


def _failure(tasks: Iterable[Task]) -> str:
    return f"cannot learn {', '.join(map(str, sorted(tasks)))}"


def note_failure(decision: TaskDecision, event: FollowingFailed) -> None:
    """Report the failure with the next rebalance."""
    session = decision.session
    decision.session = replace(
        session, unable=session.unable | {event.task}, trouble=f"task {event.task}: {event.reason}"
    )


def forget_state(decision: TaskDecision, event: StateRemoved) -> None:
    """Stop claiming removed state."""
    kept = {t: lag for t, lag in decision.session.dormant.items() if t not in event.tasks}
    decision.session = replace(decision.session, dormant=Map(kept))


def tell_that_it_leaves(decision: TaskDecision, event: LeaveSoon) -> None:
    """Ask for a rebalance in order to tell the group."""
    note_that_it_leaves(decision, event)
    if not decision.session.has_said_so:
        decision.ask(_LEAVING)


def note_that_it_leaves(decision: TaskDecision, _event: LeaveSoon) -> None:
    """Tell the group in the next rebalance, which happens anyway or is requested later."""
    if decision.session.leaving_since is None:
        decision.session = replace(decision.session, leaving_since=decision.now)


def lose_tasks(decision: TaskDecision, _event: MembershipLost) -> None:
    """Drop all tasks, and treat all state as unmeasured."""
    session = decision.session
    had = {*session.active, *session.revoked, *session.lags, *session.dormant}
    stateless = decision.topology.stateless
    decision.session = TaskSession(
        dormant=Map({task: None for task in had if task[0] not in stateless}),
        leaving_since=session.leaving_since,
        attempt=session.attempt,
    )


def pass_over(_decision: TaskDecision, _event: object) -> None:
    """Do nothing."""


_IN = (TaskMemberState.RUNNING, TaskMemberState.ASKING)
_LIVE = (TaskMemberState.OUTSIDE, TaskMemberState.JOINING, *_IN)
_ROWS: tuple[Row[TaskMemberState, TaskDecision], ...] = (
    row(TaskMemberState.JOINING, JoinStarted, say_it_again, when=is_same_attempt),
    row(_LIVE, JoinStarted, say_what_it_has, to=TaskMemberState.JOINING, rule="KIP-429, KIP-792"),
    row(
        TaskMemberState.JOINING,
        TasksAssigned,
        take_tasks,
        to=(TaskMemberState.RUNNING, TaskMemberState.ASKING, TaskMemberState.STOPPED),
    ),
    row((TaskMemberState.OUTSIDE, *_IN, TaskMemberState.STOPPED), TasksAssigned, pass_over),
    row(
        TaskMemberState.RUNNING,
        LagMeasured,
        ask_for_what_it_learned,
        when=has_learned,
        to=TaskMemberState.ASKING,
        rule="KIP-441, KIP-800",
    ),
    row(_LIVE, LagMeasured, note_lags),
    row(_LIVE, StateRemoved, forget_state),
    row(
        TaskMemberState.RUNNING,
        FollowingFailed,
        ask_for_other_tasks,
        when=has_just_failed,
        to=TaskMemberState.ASKING,
        rule="KIP-800",
    ),
    row(_LIVE, FollowingFailed, note_failure),
    row(TaskMemberState.RUNNING, LeaveSoon, tell_that_it_leaves, to=TaskMemberState.ASKING),
    row(
        (TaskMemberState.OUTSIDE, TaskMemberState.JOINING, TaskMemberState.ASKING),
        LeaveSoon,
        note_that_it_leaves,
    ),
    row(_LIVE, MembershipLost, lose_tasks, to=TaskMemberState.OUTSIDE),
    row(TaskMemberState.STOPPED, JoinStarted, pass_over),
    row(TaskMemberState.STOPPED, LagMeasured, pass_over),
    row(TaskMemberState.STOPPED, StateRemoved, pass_over),
    row(TaskMemberState.STOPPED, FollowingFailed, pass_over),
    row(TaskMemberState.STOPPED, LeaveSoon, pass_over),
    row(TaskMemberState.STOPPED, MembershipLost, pass_over),
)

MEMBER: Table[TaskMemberState, TaskDecision] = Table(
    "member of learner tasks",
    TaskMemberState,
    _ROWS,
    total=(
        JoinStarted,
        TasksAssigned,
        LagMeasured,
        StateRemoved,
        FollowingFailed,
        LeaveSoon,
        MembershipLost,
    ),
)
