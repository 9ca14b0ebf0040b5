"""The events of one member of a small group, apart from all others."""

from __future__ import annotations

from kohort.errors import LocalProtocolError
from kohort.group.assignors import ClusterView
from kohort.group.effects import SubscriptionJob
from kohort.group.events import Ownership
from kohort.group.member import leader
from kohort.group.member.events import (
    CallbackDone,
    CoordinatorKnown,
    JobDone,
    MemberDeadline,
    MemberEvent,
    Polled,
    RequestFailed,
    ResponseArrived,
    Subscribed,
    Tick,
)
from kohort.values import replace
from tests.simulation.exploring.form import NOW
from tests.simulation.exploring.state import (
    TOPIC,
    GroupProtocol,
    Life,
    MemberKind,
    Node,
    OnItsWay,
)


class Members:
    """Applies events to members.

    Args:
        protocol: Their protocol.
        cluster: The topic as their leader knows it.
    """

    def __init__(self, protocol: GroupProtocol, cluster: ClusterView) -> None:
        self._machines = {type(kind.blank("")): kind.machine for kind in protocol.kinds}
        self._cluster = cluster

    def start(self, node: Node, kind: MemberKind, unique: str) -> Node:
        """Its process starts, subscribes and polls."""
        node = replace(node, life=Life.RUNS, session=kind.blank(unique))
        return self.told(self.told(node, Subscribed(frozenset({TOPIC}))), Polled())

    def told(self, node: Node, event: MemberEvent) -> Node:
        """Pass an event to its machine; events that it refuses have no effect."""
        if node.life is not Life.RUNS:
            return node
        machine = self._machines[type(node.session)]
        machine.install(node.session)
        try:
            effects = machine.decide(event, NOW)
        except LocalProtocolError:
            return node
        machine.install(effects.session)
        node = replace(
            node,
            session=effects.session,
            up=(*node.up, *(OnItsWay(send.token, send.request) for send in effects.sends)),
            callbacks=(*node.callbacks, *effects.callbacks),
            jobs=(*node.jobs, *effects.jobs),
            looks_up=node.looks_up or effects.find_coordinator,
        )
        if effects.session.state.name == "FATAL":
            return replace(node, wrong="L1: a member cannot go on")
        return dead(node) if machine.is_closed else node

    def rung(self, node: Node, deadline: MemberDeadline) -> Node:
        """A deadline comes now."""
        deadlines = node.session.deadlines.set(deadline, NOW - 1)
        rushed = replace(node.session, deadlines=deadlines)
        return self.told(replace(node, session=rushed), Tick())

    def answered(self, node: Node) -> Node:
        """The first answer on its connection arrives."""
        answer = node.down[0]
        node = replace(node, down=node.down[1:])
        return self.told(node, ResponseArrived(answer.token, answer.message))

    def found(self, node: Node) -> Node:
        """It has found the coordinator."""
        return self.told(replace(node, looks_up=False), CoordinatorKnown())

    def assign(self, node: Node) -> Node:
        """It computes the assignment, as the leader or because it was asked."""
        job = node.jobs[0]
        said = None if isinstance(job, SubscriptionJob) else job.partitions
        cluster = self._cluster if said is None else ClusterView(said)
        assignors = self._machines[type(node.session)].assignors
        made = leader.compute(job, assignors, cluster)
        return self.told(replace(node, jobs=node.jobs[1:]), JobDone(job.token, made))

    def called(self, node: Node) -> Node:
        """Call the listener; S13: it gets only partitions it lacks, and loses only those it has."""
        callback = node.callbacks[0]
        gets = callback.change is Ownership.ASSIGNED
        both = node.believes & callback.partitions
        wrong = both if gets else callback.partitions - both
        if gets:
            believes = node.believes | callback.partitions
        else:
            believes = node.believes - callback.partitions
        node = replace(node, believes=believes, callbacks=node.callbacks[1:])
        if wrong:
            return replace(node, wrong=f"S13: {callback.change.name} of {sorted(wrong)}")
        return self.told(node, CallbackDone(callback.token))

    def cut(self, node: Node) -> Node:
        """Its connection breaks; requests in flight may still arrive."""
        tokens = waiting(node)
        node = replace(node, down=(), first_token=node.session.next_token)
        for token in tokens:
            node = self.told(node, RequestFailed(token, "cut off"))
        return node

    def unplug(self, node: Node) -> Node:
        """Its connection breaks, and all messages in flight are lost."""
        return self.cut(replace(node, up=())) if node.life is Life.RUNS else replace(node, up=())


def waiting(node: Node) -> list[int]:
    """Return the tokens of a member's requests without an answer."""
    jobs = {job.token for job in node.jobs}
    return [token for token in node.session.awaited if token not in jobs]


def dead(node: Node) -> Node:
    """The member is dead; only its messages in flight are left."""
    first_token = 1 + max((sent.token for sent in node.up), default=0)
    return Node(life=Life.OVER, up=node.up, first_token=first_token)
