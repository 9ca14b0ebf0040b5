"""Ownership of partitions: S1, S4, S6, S9 and S13."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.group.events import Ownership
from kohort.simulation.groups.facts import Called, Decided, Looked, Moved
from kohort.simulation.rules import rule
from kohort.types import TopicPartition
from kohort.wire.messages.draft import DraftJoinGroupRequest
from kohort.wire.messages.membership import JoinGroupRequest

if TYPE_CHECKING:
    from kohort.simulation.groups.base import BaseClient, BaseWorld
    from kohort.simulation.groups.views import GroupView


_JOINS = (JoinGroupRequest, DraftJoinGroupRequest)


def _is_current(group: GroupView, client: BaseClient) -> bool:
    machine = client.machine
    return group.is_current(machine.member_id, machine.generation_id)


def shown(partitions: frozenset[TopicPartition] | set[TopicPartition]) -> str:
    """Return the first five partitions as text."""
    names = [f"{topic}-{number}" for topic, number in sorted(partitions)]
    return ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")


@rule(
    "S1",
    "No two members of the present generation both believe that they own a partition.",
    Called,
    Decided,
    Looked,
)
def single_owner(world: BaseWorld, fact: Called | Decided | Looked) -> str | None:
    """Compare the partitions of the applications of present members."""
    if isinstance(fact, Called) and fact.change is not Ownership.ASSIGNED:
        return None
    beliefs = [client.application.believes for client in world.living()]
    if len(set().union(*beliefs)) == sum(map(len, beliefs)):
        return None
    group = world.view()
    if group is None:
        return None
    owners: dict[TopicPartition, str] = {}
    for client in world.living():
        if not _is_current(group, client):
            continue
        for partition in client.application.believes:
            if world.ledger.reading(partition).is_tainted:
                continue  # a topic of this name was deleted: the members may mean different topics
            other = owners.setdefault(partition, client.name)
            if other != client.name:
                return f"{other} and {client.name} both own {shown({partition})}"
    return None


@rule(
    "S4",
    "A partition goes to its new owner only after the old one, if a member, gave it up.",
    Called,
)
def revoke_before_assign(world: BaseWorld, fact: Called) -> str | None:
    """Check, when a call assigns partitions, that no other member has them."""
    if fact.change is not Ownership.ASSIGNED or not fact.begins:
        return None
    group = world.view()
    if group is None or not _is_current(group, fact.client):
        return None
    for other in world.living():
        both = frozenset(
            each
            for each in fact.partitions & other.application.believes
            if not world.ledger.reading(each).is_tainted
        )
        if other is not fact.client and both and _is_current(group, other):
            return f"{fact.client.name} is given {shown(both)} that {other.name} has not given up"
    return None


@rule(
    "S6",
    "A member at rest owns no partition that its coordinator gave to another in its generation.",
    Moved,
    Looked,
)
def owns_what_was_given(world: BaseWorld, fact: Moved | Looked) -> str | None:
    """Compare stable members with the coordinator's records."""
    clients = [fact.client] if isinstance(fact, Moved) else world.living()
    group: GroupView | None = None
    for client in clients:
        machine = client.machine
        if machine.state.name not in client.protocol.stable:
            continue
        group = group or world.view()
        if group is None or not _is_current(group, client):
            continue
        given = group.members[machine.member_id].assigned
        wrong = machine.assigned - given if given is not None else frozenset()
        wrong = frozenset(each for each in wrong if not world.ledger.reading(each).is_tainted)
        if wrong:
            return f"{client.name} owns {shown(wrong)}, which it was not given"
    return None


@rule(
    "S9",
    "An eager member, and one of the draft protocol, owns nothing when it joins.",
    Moved,
)
def eager_members_join_empty(_world: BaseWorld, fact: Moved) -> str | None:
    """Check the partitions of an eager member's application when it joins."""
    if not fact.sends or not fact.client.is_eager:
        return None
    owned = fact.client.application.believes
    if owned and any(isinstance(each, _JOINS) for each in fact.sends):
        return f"{fact.client.name} joins while its application owns {shown(owned)}"
    return None


@rule(
    "S13",
    "For each partition the calls are assigned, then revoked or lost, and so on; they never"
    " overlap.",
    Called,
)
def legal_calls(_world: BaseWorld, fact: Called) -> str | None:
    """Compare a new call with the partitions that the application believes to own."""
    if not fact.begins:
        return None
    believes = fact.client.application.believes
    if fact.change is Ownership.ASSIGNED:
        both = fact.partitions & believes
        return f"{fact.client.name} is given {shown(both)} twice" if both else None
    missing = fact.partitions - believes
    if missing:
        return f"{fact.client.name} is asked for {shown(missing)}, which it does not have"
    return None


@rule(
    "S13",
    "The partitions that a member claims are those that its application got.",
    Looked,
)
def belief_is_knowledge(world: BaseWorld, _fact: Looked) -> str | None:
    """Compare the application and the machine while no call is running."""
    for client in world.living():
        application, machine = client.application, client.machine
        if application.calling is not None or application.callbacks:
            continue
        if machine.assigned != application.believes:
            differ = machine.assigned ^ application.believes
            return f"{client.name} and its application differ about {shown(differ)}"
    return None
