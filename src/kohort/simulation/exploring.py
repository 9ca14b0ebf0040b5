"""Every order of events of a small classic group, breadth first, on the same machines.

Time stands still: what is due may happen at any moment, so a deadline is an event that is always
possible. Messages keep their order on a connection; everything else may happen in any order. Two
worlds are one state when nothing that can happen later tells them apart: tokens count only by their
order, deadlines only by their names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from kohort.group.assignors import BUILTIN_ASSIGNORS, Assignor, ClusterView
from kohort.group.coordinator.classic.group import ClassicGroup, GroupState
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.events import (
    RequestArrived,
    SessionExpired,
    ShardEvent,
)
from kohort.group.coordinator.events import Tick as ShardTick
from kohort.group.coordinator.lifecycle import SHARD
from kohort.group.coordinator.records import LogState
from kohort.group.coordinator.session import ShardDraft, ShardSession
from kohort.group.coordinator.shard import Shard
from kohort.group.effects import AssignmentJob, Callback
from kohort.group.events import Ownership
from kohort.group.member import leader
from kohort.group.member.classic.machine import ClassicMember, MemberSession, MemberState
from kohort.group.member.config import MemberConfig
from kohort.group.member.events import (
    CallbackDone,
    Closing,
    CoordinatorKnown,
    HeartbeatDue,
    JobDone,
    LookupDue,
    MemberEvent,
    RejoinAsked,
    RequestFailed,
    ResponseArrived,
    RetryDue,
    Subscribed,
    Tick,
)
from kohort.group.values import replace
from kohort.types import TopicPartition
from kohort.wire import group_log
from kohort.wire.messages.membership import JoinGroupRequest
from kohort.wire.schema import Message

_NOW = 1_000_000
_GROUP = "small"
_TOPIC = "flights"
_FORCED = (HeartbeatDue(), RetryDue(), LookupDue())


@dataclass(frozen=True, slots=True)
class Node:
    """A member with its connection and its application; a value.

    Attributes:
        session: The machine's session.
        believes: What the application owns, by its calls.
        up: Requests on their way, oldest first: token and request.
        down: Answers on their way.
        callbacks: Calls that wait for the application.
        jobs: Assignments to be made.
        looks_up: Whether it looks for the coordinator.
        alive: Whether its process runs.
        ids: How many ids the coordinator gave out to it.
    """

    session: MemberSession
    believes: frozenset[TopicPartition] = frozenset()
    up: tuple[tuple[int, Message], ...] = ()
    down: tuple[tuple[int, Message], ...] = ()
    callbacks: tuple[Callback, ...] = ()
    jobs: tuple[AssignmentJob, ...] = ()
    looks_up: bool = False
    alive: bool = True
    ids: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """A world of the explorer; a value.

    Attributes:
        fold: The coordinator's log state.
        session: The coordinator's session.
        log: The group log as bytes.
        nodes: The members.
        perturbations: How many more may happen.
    """

    fold: LogState
    session: ShardSession
    log: tuple[tuple[bytes, bytes | None], ...]
    nodes: tuple[Node, ...]
    perturbations: int

    @property
    def group(self) -> ClassicGroup:
        """The group, as the coordinator knows it."""
        return self.session.group(self.fold, _GROUP)


@dataclass(slots=True)
class Explored:
    """What was found.

    Attributes:
        states: How many distinct states.
        steps: How many events.
        is_complete: Whether there are no others.
        violation: What rule was broken, empty when none was.
        path: The events that lead there.
    """

    states: int = 0
    steps: int = 0
    is_complete: bool = False
    violation: str = ""
    path: list[str] = field(default_factory=list)


class Explorer:
    """Explores one small group.

    Args:
        members: How many members.
        partitions: How many partitions their topic has.
        perturbations: How many things may go wrong in one run.
        assignor: Name of the assignor.
    """

    def __init__(
        self, members: int, partitions: int, perturbations: int, assignor: str = "range"
    ) -> None:
        self._config = CoordinatorConfig(group_initial_rebalance_delay_ms=0)
        chosen: Assignor = BUILTIN_ASSIGNORS[assignor]
        self._machines = tuple(
            ClassicMember(MemberConfig(group_id=_GROUP), (chosen,)) for _ in range(members)
        )
        self._cluster = ClusterView({_TOPIC: partitions})
        self._start = self._first(members, perturbations)

    def _first(self, members: int, perturbations: int) -> State:
        shard = self._loaded(())
        nodes = tuple(Node(MemberSession()) for _ in range(members))
        state = State(shard.log, shard.session, (), nodes, perturbations)
        for index in range(members):
            state = self._tell(state, index, Subscribed(frozenset({_TOPIC})))
        return state

    # --------------------------------------------------------------------------------- exploring

    def explore(self, most: int) -> Explored:
        """Visit states, breadth first, until there are no new ones or `most` are reached."""
        found = Explored(states=1)
        first = key(self._start)
        parents: dict[object, tuple[object, str]] = {first: (None, "")}
        queue = deque([(self._start, first)])
        while queue:
            state, at = queue.popleft()
            moved = False
            for what, after in self._steps(state):
                found.steps += 1
                reached = key(after)
                moved = moved or reached != at
                if reached in parents:
                    continue
                parents[reached] = (at, what)
                found.states += 1
                found.violation = self._wrong(after)
                if found.violation or found.states >= most:
                    found.path = _path(parents, reached) if found.violation else []
                    return found
                queue.append((after, reached))
            if moved:
                continue
            later = self._time_passes(state)
            if later is not None:
                reached = key(later)
                if reached not in parents:
                    parents[reached] = (at, "time passes")
                    found.states += 1
                    queue.append((later, reached))
            elif not self._is_settled(state):
                found.violation = "L1: nothing can happen, and the group is not settled"
                found.path = _path(parents, at)
                return found
        found.is_complete = True
        return found

    def _time_passes(self, state: State) -> State | None:
        """Let the coordinator's next deadline come that no living member puts off."""
        living = {node.session.member_id for node in state.nodes if node.alive}
        for deadline, _ in sorted(
            state.session.deadlines.due_times().items(), key=lambda entry: (entry[1], entry[0])
        ):
            if deadline.group_id != _GROUP:
                continue
            if isinstance(deadline, SessionExpired) and deadline.member_id in living:
                continue
            deadlines = state.session.deadlines.set(deadline, _NOW - 1)
            late = replace(state, session=replace(state.session, deadlines=deadlines))
            return self._coordinate(late, ShardTick())
        return None

    def _steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield everything that can happen in a state."""
        due = state.session.deadlines.next()
        if due is not None and due[0] <= _NOW:
            yield "coordinator's time", self._coordinate(state, ShardTick())
        for index, node in enumerate(state.nodes):
            if node.up:
                yield f"{index} request", self._deliver(state, index)
            if not node.alive:
                continue
            yield from self._member_steps(state, index, node)
        if state.perturbations:
            yield from self._perturb(replace(state, perturbations=state.perturbations - 1))

    def _member_steps(self, state: State, index: int, node: Node) -> Iterator[tuple[str, State]]:
        if node.down:
            token, response = node.down[0]
            rest = self._with(state, index, replace(node, down=node.down[1:]))
            yield f"{index} answer", self._tell(rest, index, ResponseArrived(token, response))
        if node.looks_up:
            rest = self._with(state, index, replace(node, looks_up=False))
            yield f"{index} found", self._tell(rest, index, CoordinatorKnown())
        if node.jobs:
            yield f"{index} assigns", self._assign(state, index, node)
        if node.callbacks:
            yield f"{index} called", self._call(state, index, node)
        for deadline in _FORCED:
            if node.session.deadlines.get(deadline) is not None and node.session.heartbeat is None:
                deadlines = node.session.deadlines.set(deadline, _NOW - 1)
                rushed = replace(node, session=replace(node.session, deadlines=deadlines))
                rest = self._with(state, index, rushed)
                yield f"{index} {deadline.kind}", self._tell(rest, index, Tick())

    def _perturb(self, state: State) -> Iterator[tuple[str, State]]:
        for member_id in sorted(state.group.members):
            expired = SessionExpired(_GROUP, member_id)
            if state.session.deadlines.get(expired) is not None:
                deadlines = state.session.deadlines.set(expired, _NOW - 1)
                late = replace(state, session=replace(state.session, deadlines=deadlines))
                yield f"{member_id} expires", self._coordinate(late, ShardTick())
        for index, node in enumerate(state.nodes):
            if not node.alive:
                continue
            yield f"{index} dies", self._with(state, index, _dead(node))
            yield f"{index} cut off", self._cut(state, index, node)
            if node.session.state in (MemberState.STABLE, MemberState.ASSIGNING):
                yield f"{index} rejoins", self._tell(state, index, RejoinAsked("because"))
            if node.session.after_leaving is MemberState.CLOSED and (
                node.session.state is not MemberState.LEAVING
            ):
                yield f"{index} closes", self._tell(state, index, Closing())
        yield "failover", self._reload(state)

    # --------------------------------------------------------------------------------- machines

    def _loaded(self, log: tuple[tuple[bytes, bytes | None], ...]) -> Shard:
        shard = Shard(self._config)
        shard.load_started()
        for record_key, value in log:
            record = group_log.decode_record(record_key, value)
            assert record is not None
            shard.apply(record)
        shard.load_finished(_NOW)
        return shard

    def _with(self, state: State, index: int, node: Node) -> State:
        return replace(state, nodes=(*state.nodes[:index], node, *state.nodes[index + 1 :]))

    def _tell(self, state: State, index: int, event: MemberEvent) -> State:
        node, machine = state.nodes[index], self._machines[index]
        machine.install(node.session)
        effects = machine.decide(event, _NOW)
        return self._with(
            state,
            index,
            replace(
                node,
                session=effects.session,
                up=(*node.up, *((send.token, send.request) for send in effects.sends)),
                callbacks=(*node.callbacks, *effects.callbacks),
                jobs=(*node.jobs, *effects.jobs),
                looks_up=node.looks_up or effects.find_coordinator,
                alive=effects.session.state is not MemberState.CLOSED,
            ),
        )

    def _deliver(self, state: State, index: int) -> State:
        node = state.nodes[index]
        token, request = node.up[0]
        state = self._with(state, index, replace(node, up=node.up[1:], ids=node.ids + 1))
        arrived = RequestArrived(
            token=token * len(state.nodes) + index,
            request=request,
            version=type(request).max_version,
            client_id=f"member-{index}",
            unique_id=str(node.ids),
        )
        return self._coordinate(state, arrived)

    def _coordinate(self, state: State, event: ShardEvent) -> State:
        draft = ShardDraft(self._config, state.fold, state.session, _NOW)
        SHARD.run(draft, type(event), event)
        effects, fold = draft.effects(), state.fold
        for record in effects.records:
            fold = fold.apply(record)
        encoded = tuple(group_log.encode_record(r.key, r.value) for r in effects.records)
        state = replace(state, fold=fold, session=effects.session, log=state.log + encoded)
        count = len(state.nodes)
        for reply in effects.replies:
            token, index = divmod(reply.token, count)
            node = state.nodes[index]
            if node.alive and token > 0:
                answered = replace(node, down=(*node.down, (token, reply.response)))
                state = self._with(state, index, answered)
        return state

    def _reload(self, state: State) -> State:
        """The coordinator moves: every connection breaks, the next one reads the log."""
        shard = self._loaded(state.log)
        state = replace(state, fold=shard.log, session=shard.session)
        for index, node in enumerate(state.nodes):
            if node.alive:
                state = self._cut(state, index, replace(node, up=()))
        return state

    def _cut(self, state: State, index: int, node: Node) -> State:
        """Its connection breaks; what is on its way up may still arrive."""
        waiting = [each for each in (node.session.request, node.session.heartbeat) if each]
        state = self._with(state, index, replace(node, down=()))
        for sent in waiting:
            state = self._tell(state, index, RequestFailed(sent.token, "cut off"))
        return state

    def _assign(self, state: State, index: int, node: Node) -> State:
        job = node.jobs[0]
        state = self._with(state, index, replace(node, jobs=node.jobs[1:]))
        made = leader.compute(job, self._machines[index].assignors, self._cluster)
        return self._tell(state, index, JobDone(job.token, made))

    def _call(self, state: State, index: int, node: Node) -> State:
        callback = node.callbacks[0]
        if callback.change is Ownership.ASSIGNED:
            believes = node.believes | callback.partitions
        else:
            believes = node.believes - callback.partitions
        told = replace(node, believes=believes, callbacks=node.callbacks[1:])
        return self._tell(self._with(state, index, told), index, CallbackDone(callback.token))

    # --------------------------------------------------------------------------------- rules

    def _wrong(self, state: State) -> str:
        """Return which rule a state breaks: S1 or S3."""
        group = state.group
        owners: dict[TopicPartition, int] = {}
        for index, node in enumerate(state.nodes):
            session = node.session
            present = session.member_id in group.members and session.generation == group.generation
            if not node.alive or not present:
                continue
            for partition in node.believes:
                if owners.setdefault(partition, index) != index:
                    return f"S1: {owners[partition]} and {index} both own {partition}"
        if group.members and group.leader not in group.members:
            return "S3: the leader is no member"
        return ""

    def _is_settled(self, state: State) -> bool:
        group = state.group
        living = [node for node in state.nodes if node.alive]
        owned = [partition for node in living for partition in node.believes]
        everything = self._cluster.partitions[_TOPIC] if living else 0
        settled = group.state in (GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD)
        return settled and len(owned) == len(set(owned)) == everything


def _dead(node: Node) -> Node:
    """Nothing of it is left but what is on its way."""
    return replace(
        node,
        alive=False,
        session=MemberSession(),
        believes=frozenset(),
        down=(),
        callbacks=(),
        jobs=(),
        looks_up=False,
    )


def _path(parents: dict[object, tuple[object, str]], at: object) -> list[str]:
    path: list[str] = []
    while at is not None:
        at, what = parents[at]
        path.append(what)
    return path[-2::-1]


# ------------------------------------------------------------------------------------- state keys


def key(state: State) -> int:
    """Return a number that two states share when nothing tells them apart."""
    group, session = state.group, state.session
    tokens = _ranks(state)
    stored = state.fold.groups.get(_GROUP)
    assigned = (
        tuple(sorted((m.member_id, m.assignment) for m in stored.members.values()))
        if stored
        else None
    )
    coordinator = (
        group.state.name,
        group.generation,
        group.leader,
        (group.initial, group.member_added, group.delay_left_ms > 0),
        tuple((m.member_id, m.is_new, m.protocols) for m in group.sorted_members()),
        tuple(sorted((i, tokens.get(p.token)) for i, p in group.joining.items())),
        tuple(sorted((i, tokens.get(p.token)) for i, p in group.syncing.items())),
        tuple(sorted(group.unsynced)),
        tuple(sorted(group.pending)),
        assigned,
        tuple(sorted(session.deadlines.due_times().items())),
    )
    nodes = tuple(_node_key(index, node, tokens, state) for index, node in enumerate(state.nodes))
    return hash((coordinator, nodes, state.perturbations))


def _ranks(state: State) -> dict[int, int]:
    """Number the tokens that still matter, each member's by their order."""
    count = len(state.nodes)
    ranks: dict[int, int] = {}
    for index, node in enumerate(state.nodes):
        alive = {token for token, _ in (*node.up, *node.down)}
        alive |= {s.token for s in (node.session.request, node.session.heartbeat) if s}
        for rank, token in enumerate(sorted(alive)):
            ranks[token * count + index] = rank
    return ranks


def _node_key(index: int, node: Node, tokens: dict[int, int], state: State) -> tuple[object, ...]:
    session, count = node.session, len(state.nodes)

    def rank(token: int) -> int | None:
        return tokens.get(token * count + index)

    return (
        session.state.name,
        session.member_id,
        session.generation,
        tuple(sorted(session.owned)),
        session.prepared,
        session.rejoin is not None,
        session.coordinator_known,
        rank(session.request.token) if session.request else None,
        rank(session.heartbeat.token) if session.heartbeat else None,
        session.callback is not None,
        tuple((c.change.name, tuple(sorted(c.partitions))) for c in node.callbacks),
        tuple(tuple(sorted(j.subscriptions)) for j in node.jobs),
        session.after_leaving.name,
        min(session.failures, 1),
        tuple(sorted(d.kind for d in session.deadlines.due_times())),
        tuple(sorted(node.believes)),
        tuple((rank(t), _request_key(m)) for t, m in node.up),
        tuple((rank(t), _request_key(m)) for t, m in node.down),
        node.looks_up,
        node.alive,
    )


def _request_key(message: Message) -> object:
    """Return a message without the reason, which is for people."""
    if isinstance(message, JoinGroupRequest):
        return replace(message, reason=None)
    return message
