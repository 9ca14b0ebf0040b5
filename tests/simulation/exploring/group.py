"""A small group, as a model to explore: the same machines, and every order of events.

There is no clock: a deadline is an event that is possible at any moment. The expiry of a silent
process is a normal step; that of a live one is a perturbation, and so are deaths, broken
connections and coordinators that move. Messages keep their order on a connection; everything else
may happen in any order.

Machines are pure, so the effect of an event on one member, or on the coordinator, is computed once
and cached: most states of the whole are new combinations of known parts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import TypeVar, cast
from uuid import UUID

from kohort.group.assignors import ClusterView
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.events import (
    ConsumerSessionExpired,
    Deadline,
    LoadFinished,
    LoadStarted,
    PendingExpired,
    RequestArrived,
    SessionExpired,
    ShardEvent,
    Tick,
    TopicsChanged,
)
from kohort.group.coordinator.lifecycle import SHARD
from kohort.group.coordinator.session import ShardDecision
from kohort.group.coordinator.state import ShardSession
from kohort.group.coordinator.topics import TopicsImage, TopicView
from kohort.group.effects import Effects
from kohort.group.member.events import (
    HEARTBEAT_DUE,
    LOOKUP_DUE,
    POLL_OVERDUE,
    RETRY_DUE,
    Closing,
    MemberDeadline,
    MemberEvent,
    Polled,
    TopicsNamed,
)
from kohort.simulation.groups.coordinator import do_job
from kohort.types import TopicPartition
from kohort.values import replace
from tests.simulation.exploring.form import ID, NOW, Form, Forms
from tests.simulation.exploring.key import key
from tests.simulation.exploring.members import Members, dead, waiting
from tests.simulation.exploring.state import (
    GROUP,
    TOPIC,
    Coordinator,
    GroupProtocol,
    Life,
    MemberKind,
    Node,
    OnItsWay,
    State,
)

T = TypeVar("T")

_TOPIC_ID = UUID(int=1)
_FORCED = (HEARTBEAT_DUE, RETRY_DUE, LOOKUP_DUE)
# The deadlines that end a dead process.
_SILENCE = (SessionExpired, PendingExpired, ConsumerSessionExpired)
_FIRST_ID = 100_000

Answers = tuple[tuple[int, OnItsWay], ...]


class SmallGroup:
    """A group that can be explored.

    Args:
        protocol: Its protocol.
        members: How many members it has.
        partitions: How many partitions their topic has.
        perturbations: Most perturbations in one run.
    """

    def __init__(
        self, protocol: GroupProtocol, members: int, partitions: int, perturbations: int
    ) -> None:
        self._protocol = protocol
        self._members, self._perturbations = members, perturbations
        self._config = CoordinatorConfig(group_initial_rebalance_delay_ms=0)
        self._apply = Members(protocol, ClusterView({TOPIC: partitions}))
        topic = TopicView(_TOPIC_ID, partitions)
        self._topics = TopicsImage.of([(TOPIC, topic)], TopicsImage())
        self._everything = frozenset(TopicPartition(TOPIC, each) for each in range(partitions))
        self._forms = Forms()
        self._form_of: dict[Node | Coordinator, Form] = {}
        self._same: dict[Hashable, Node | Coordinator] = {}
        self._known: dict[Hashable, object] = {}

    # ------------------------------------------------------------------------------- as a model

    def first(self) -> State:
        """Return the state before any process has started."""
        coordinator = self._load(Coordinator(self._protocol.fold, ShardSession()))
        node = self._node(Node())
        return State(coordinator, (node,) * self._members, self._perturbations)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield the normal steps."""
        yield from self._coordinator_steps(state)
        for index, node in enumerate(state.nodes):
            if node.up:
                yield f"{index} request", self._deliver(state, index, node)
            if node.life is Life.RUNS:
                yield from self._member_steps(state, index, node)
            elif node.life is Life.NEW:
                for kind in self._protocol.kinds:
                    yield self._started(index, kind), self._start(state, index, kind)

    def perturbations(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield the perturbations, while any are left."""
        if state.perturbations:
            yield from self._perturb(state._replace(perturbations=state.perturbations - 1))

    def key(self, state: State) -> Hashable:
        """Return the state's normal form; members are only distinguished by their states."""
        return key(state, self._form_of, self._protocol.epoch(state.coordinator))

    def wrong(self, state: State) -> str:
        """Return the rule that a state breaks: S1, S13, or one of the coordinator's."""
        coordinator = state.coordinator
        owners: dict[TopicPartition, int] = {}
        for index, node in enumerate(state.nodes):
            if node.wrong:
                return node.wrong
            if not node.believes or not self._is_current(coordinator, node):
                continue
            for partition in node.believes:
                if owners.setdefault(partition, index) != index:
                    return f"S1: {owners[partition]} and {index} both own {partition}"
        return self._once((coordinator, "wrong"), lambda: self._protocol.wrong(coordinator))

    def is_settled(self, state: State) -> bool:
        """Whether each partition has exactly one owner among the running members."""
        if not self._protocol.is_at_rest(state.coordinator):
            return False
        living = [node for node in state.nodes if node.life is Life.RUNS]
        owned = [partition for node in living for partition in node.believes]
        return not living or (
            len(owned) == len(self._everything) and frozenset(owned) == self._everything
        )

    def _is_current(self, coordinator: Coordinator, node: Node) -> bool:
        session = node.session
        return self._protocol.is_current(coordinator, session.member_id, session.generation)

    # ------------------------------------------------------------------------------------- steps

    def _coordinator_steps(self, state: State) -> Iterator[tuple[str, State]]:
        coordinator = state.coordinator
        due = coordinator.session.deadlines.next()
        if due is not None and due[0] <= NOW:
            yield "coordinator's time", self._expire(state, due[1])
        if coordinator.jobs:
            yield "coordinator assigns", self._do_job(state)
        held = {name for node in state.nodes for name in self._form_of[node].ids}
        for deadline in self._deadlines(coordinator):
            if isinstance(deadline, _SILENCE) and deadline.member_id not in held:
                yield f"{deadline.kind} of {deadline.member_id}", self._expire(state, deadline)

    def _member_steps(self, state: State, index: int, node: Node) -> Iterator[tuple[str, State]]:
        if node.down:
            yield f"{index} answer", self._local(state, index, "answer", self._apply.answered)
        if node.looks_up:
            yield f"{index} found", self._local(state, index, "found", self._apply.found)
        if node.jobs:
            yield f"{index} assigns", self._local(state, index, "assigns", self._apply.assign)
        if node.callbacks:
            yield f"{index} called", self._local(state, index, "called", self._apply.called)
        session = node.session
        if session.unnamed:
            named = TopicsNamed(self._topics.names)
            yield f"{index} names", self._tell(state, index, "names", named)
        if session.state.name == "STALE" and session.callback is None:
            yield f"{index} polls", self._tell(state, index, "polls", Polled())
        for deadline in _FORCED:
            if session.deadlines.get(deadline) is None:
                continue
            if deadline != _FORCED[0] or session.heartbeat is None:
                yield f"{index} {deadline.kind}", self._ring(state, index, deadline)

    def _perturb(self, state: State) -> Iterator[tuple[str, State]]:
        held = {name for node in state.nodes for name in self._form_of[node].ids}
        for deadline in self._deadlines(state.coordinator):
            if not isinstance(deadline, _SILENCE) or deadline.member_id in held:
                yield " ".join(map(str, deadline[1:])), self._expire(state, deadline)
        for index, node in enumerate(state.nodes):
            if node.life is not Life.RUNS:
                continue
            yield f"{index} dies", self._local(state, index, "dies", dead)
            if waiting(node):
                yield f"{index} cut off", self._local(state, index, "cut off", self._apply.cut)
            if node.session.deadlines.get(POLL_OVERDUE) is not None:
                yield f"{index} stalls", self._ring(state, index, POLL_OVERDUE)
            kind = self._protocol.kind_of(node.session)
            if kind.can_close(node.session):
                yield f"{index} closes", self._tell(state, index, "closes", Closing())
            for what, call in kind.calls(node.session):
                yield f"{index} {what}", self._tell(state, index, what, call)
        yield "failover", self._fail_over(state)

    def _deadlines(self, coordinator: Coordinator) -> list[Deadline]:
        """Return the group's deadlines that are not due yet."""
        return self._once(
            (coordinator, "deadlines"),
            lambda: sorted(
                deadline
                for deadline, due in coordinator.session.deadlines.due_times().items()
                if deadline.group_id == GROUP and due > NOW
            ),
        )

    # --------------------------------------------------------------------------------- the members

    def _local(
        self, state: State, index: int, what: Hashable, change: Callable[[Node], Node]
    ) -> State:
        """Apply an event that concerns only one member."""
        before = state.nodes[index]
        after = self._once((before, what), lambda: self._node(change(before)))
        return _with(state, index, after)

    def _tell(self, state: State, index: int, what: str, event: MemberEvent) -> State:
        return self._local(state, index, what, lambda node: self._apply.told(node, event))

    def _ring(self, state: State, index: int, deadline: MemberDeadline) -> State:
        return self._local(
            state, index, deadline.kind, lambda node: self._apply.rung(node, deadline)
        )

    def _started(self, index: int, kind: MemberKind) -> str:
        several = len(self._protocol.kinds) > 1
        return f"{index} starts as {kind.name}" if several else f"{index} starts"

    def _start(self, state: State, index: int, kind: MemberKind) -> State:
        """Start a process, with an id that is newer than all others."""
        before = state.coordinator
        unique = f"{ID}{_FIRST_ID + before.ids}"
        more = replace(before, ids=before.ids + 1)
        state = state._replace(coordinator=self._once((before, "id"), lambda: self._counted(more)))
        start = partial(self._apply.start, kind=kind, unique=unique)
        return self._local(state, index, (unique, kind.name), start)

    def _node(self, node: Node) -> Node:
        """Return the one node that represents all equal ones."""
        values = (
            node.life, node.session, node.believes, node.up, node.down, node.callbacks, node.jobs,
            node.looks_up, node.wrong,
        )  # fmt: skip
        form, same = self._forms.of(values, node.first_token)
        return self._kept(node, form, same)

    def _kept(self, value: T, form: Form, same: Hashable) -> T:
        kept = self._same.setdefault(same, value)  # type: ignore[arg-type]  # a node or a coordinator, as the forms differ
        self._form_of.setdefault(kept, form)
        return kept  # type: ignore[return-value]  # of the same class, as its form has it

    # ----------------------------------------------------------------------------- the coordinator

    def _deliver(self, state: State, index: int, node: Node) -> State:
        """The coordinator gets the first request of a connection."""
        sent = node.up[0]
        rest = self._once((node, "sent"), lambda: self._node(replace(node, up=node.up[1:])))
        before = state.coordinator
        state = _with(state, index, rest)

        def arrive() -> tuple[Coordinator, Answers]:
            arrived = RequestArrived(
                token=sent.token * len(state.nodes) + index,
                request=sent.message,
                version=type(sent.message).max_version,
                client_id=GROUP,
                unique_id=str(_FIRST_ID + before.ids),
            )
            asks_for_id = getattr(sent.message, "member_id", None) == ""
            return self._decide(replace(before, ids=before.ids + asks_for_id), arrived)

        coordinator, answers = self._once((before, sent, index), arrive)
        return self._answer(state._replace(coordinator=coordinator), answers)

    def _expire(self, state: State, deadline: Deadline) -> State:
        before = state.coordinator

        def expire() -> tuple[Coordinator, Answers]:
            deadlines = before.session.deadlines.set(deadline, NOW - 1)
            late = replace(before, session=replace(before.session, deadlines=deadlines))
            return self._decide(late, Tick())

        coordinator, answers = self._once((before, deadline), expire)
        return self._answer(state._replace(coordinator=coordinator), answers)

    def _do_job(self, state: State) -> State:
        before = state.coordinator

        def work() -> tuple[Coordinator, Answers]:
            rest = replace(before, jobs=before.jobs[1:])
            return self._decide(rest, do_job(before.jobs[0], 0))

        coordinator, answers = self._once((before, "job"), work)
        return self._answer(state._replace(coordinator=coordinator), answers)

    def _fail_over(self, state: State) -> State:
        """The coordinator moves: every connection breaks, the next one reads the log."""
        before = state.coordinator
        state = state._replace(coordinator=self._once((before, "load"), lambda: self._load(before)))
        for index in range(len(state.nodes)):
            state = self._local(state, index, "unplugged", self._apply.unplug)
        return state

    def _load(self, before: Coordinator) -> Coordinator:
        fresh = Coordinator(before.fold, ShardSession(), ids=before.ids)
        for event in (LoadStarted(), TopicsChanged(self._topics), LoadFinished()):
            fresh, _ = self._decide(fresh, event)
        return fresh

    def _decide(self, before: Coordinator, event: ShardEvent) -> tuple[Coordinator, Answers]:
        """Pass an event to the coordinator's machine; its records are written at once."""
        draft = ShardDecision(self._config, before.fold, before.session, NOW)
        SHARD.run(draft, type(event), event)
        effects = cast("Effects[ShardSession]", draft.effects())
        fold = before.fold
        for record in effects.records:
            fold = fold.apply(record)
        jobs = (*before.jobs, *effects.consumer_jobs, *effects.draft_jobs)
        after = self._counted(Coordinator(fold, effects.session, jobs, before.ids))
        answers = []
        for reply in effects.replies:
            token, index = divmod(reply.token, self._members)
            answers.append((index, OnItsWay(token, reply.response)))
        return after, tuple(answers)

    def _counted(self, value: Coordinator) -> Coordinator:
        """Return the one coordinator that represents all equal ones."""
        form, same = self._forms.of((value.fold, value.session, value.jobs))
        return self._kept(value, form, (*same, value.ids))

    def _answer(self, state: State, answers: Answers) -> State:
        for index, answer in answers:
            node = state.nodes[index]
            if node.life is Life.RUNS and answer.token >= node.first_token:
                state = self._local(state, index, answer, partial(_answer, answer))
        return state

    def _once(self, key: Hashable, work: Callable[[], T]) -> T:
        """Return the cached result for a key, or compute it."""
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = work()
        return known  # type: ignore[return-value]  # computed for this key


def _with(state: State, index: int, node: Node) -> State:
    nodes = (*state.nodes[:index], node, *state.nodes[index + 1 :])
    return State(state.coordinator, nodes, state.perturbations)


def _answer(answer: OnItsWay, node: Node) -> Node:
    return replace(node, down=(*node.down, answer))
