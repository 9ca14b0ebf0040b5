"""Conditions that must eventually hold: L1-L8."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.simulation.checkers.ownership import shown
from kohort.simulation.groups.facts import Looked, Settled
from kohort.simulation.rules import rule
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.simulation.groups.base import BaseClient, BaseWorld

# How long a removed member may take to request membership again.
_BACK_MS = 120_000
_CLOSE_MS = 240_000
# Events of one member; a heartbeat takes four, refusals of a loading coordinator many more.
_EVENTS_PER_MINUTE = 2_000
_BURST_MINUTES = 5


def wanting(world: BaseWorld) -> list[BaseClient]:
    """Return the members that run and want partitions."""
    return [c for c in world.living() if not c.application.closing and c.application.wants]


def is_converged(world: BaseWorld) -> bool:
    """Return whether all members are stable with their assignments, and all records are read."""
    if world.coordinator.ready is None or world.restarting or not _at_rest(world):
        return False
    return _unread(world) is None and _owned(world) is None


def _at_rest(world: BaseWorld) -> bool:
    group = world.view()
    if group is None or not (group.is_settled or not group.members):
        return False
    clients = wanting(world)
    ids = {client.machine.member_id for client in clients}
    return ids == set(group.members) and all(
        client.machine.state.name in client.protocol.stable
        and group.is_current(client.machine.member_id, client.machine.generation_id)
        and client.application.calling is None
        for client in clients
    )


def _owned(world: BaseWorld) -> str | None:
    """Return the error in the ownership of subscribed partitions, None if there is none."""
    clients = wanting(world)
    topics = frozenset().union(*(client.application.topics for client in clients))
    owners: dict[TopicPartition, list[str]] = {}
    for client in clients:
        for partition in client.application.believes:
            owners.setdefault(partition, []).append(client.name)
    wanted = set(world.topics.partitions(topics - world.unseen))
    owners = {each: names for each, names in owners.items() if each.topic not in world.unseen}
    if clients and owners.keys() != wanted:
        return f"no member owns {shown(wanted - owners.keys())}"
    twice = {partition for partition, names in owners.items() if len(names) > 1}
    return f"two members own {shown(twice)}" if twice else None


def _unread(world: BaseWorld) -> str | None:
    """Return records of subscribed topics that were never handed out."""
    topics = frozenset().union(*(client.application.topics for client in wanting(world)))
    for partition in world.topics.partitions(topics - world.unseen):
        reading = world.ledger.reading(partition)
        end = world.topics.end(partition)
        if not reading.is_tainted and reading.delivered < end:
            return f"{partition} was read to {reading.delivered} of {end}"
    return None


@rule("L3", "Once faults have stopped, all members come to rest.", Settled)
def nobody_on_the_way(world: BaseWorld, fact: Settled) -> str | None:
    """Look for members that still join, leave or wait for a call, or that keep dying."""
    if world.restarting:
        return f"{min(world.restarting)} dies again and again after {fact.bound_ms} ms of calm"
    for client in wanting(world):
        machine = client.machine
        if machine.state.name not in client.protocol.stable:
            return f"{client.name} is {machine.state.name} after {fact.bound_ms} ms of calm"
    return None


@rule("L2", "Once faults have stopped, every subscribed partition has one owner.", Settled)
def everything_owned(world: BaseWorld, _fact: Settled) -> str | None:
    """Look for partitions without an owner."""
    return _owned(world)


@rule("L1", "Once faults have stopped, the group converges within a computed bound.", Settled)
def converges(world: BaseWorld, fact: Settled) -> str | None:
    """Check whether the group has converged."""
    if is_converged(world):
        return None
    group = world.view()
    state = "no coordinator" if group is None else f"{group.state} with {len(group.members)}"
    return f"not converged after {fact.bound_ms} ms of calm: {state}; {_unread(world)}"


@rule("L4", "Once faults have stopped, few rebalances are enough.", Settled)
def few_rebalances(world: BaseWorld, _fact: Settled) -> str | None:
    """Count the generations that began in calm."""
    begun = world.ledger.generations - world.ledger.generations_at_calm
    allowed = 6 + 4 * len(world.plans)
    return f"{begun} generations in calm, {allowed} are enough" if begun > allowed else None


@rule(
    "L5",
    "A cooperative member goes on reading partitions that do not move.",
    Looked,
)
def keeps_reading(world: BaseWorld, _fact: Looked) -> str | None:
    """Look for members that may not read their partitions."""
    for client in world.living():
        machine, application = client.machine, client.application
        if client.is_eager or machine.generation_id < 0:
            continue
        calling = application.calling.partitions if application.calling else frozenset()
        waiting = frozenset().union(*(each.partitions for each in application.callbacks))
        stopped = application.believes - machine.fetchable - calling - waiting
        if stopped:
            return f"{client.name} may not read {shown(stopped)}"
    return None


@rule("L8", "No storm: events stay in proportion to members and time.", Looked)
def no_storm(world: BaseWorld, _fact: Looked) -> str | None:
    """Count events, and allow for bursts."""
    minutes = world.engine.now / 60_000
    allowed = _EVENTS_PER_MINUTE * len(world.plans) * (minutes + _BURST_MINUTES)
    if world.engine.steps > allowed:
        return f"{world.engine.steps} events in {minutes:.1f} minutes"
    return None


@rule("L6", "Closing ends, even without answers.", Looked)
def closing_ends(world: BaseWorld, _fact: Looked) -> str | None:
    """Look for members that have been closing for too long."""
    now = world.engine.now
    for client in world.living():
        application = client.application
        since = application.closing_since
        if not application.closing or since is None:
            continue
        plan = client.plan
        patience = _CLOSE_MS + plan.session_timeout_ms + 4 * plan.listener_ms
        held = max(client.paused_until, application.stalled_until, client.held_until)
        if now - max(since, held) > patience + 4 * application.slow_ms:
            return f"{client.name} has been closing since {since} ms"
    return None


@rule("L7", "A removed member soon asks for membership again.", Looked)
def comes_back(world: BaseWorld, _fact: Looked) -> str | None:
    """Look for members without a membership for long, though nothing prevents one."""
    now = world.engine.now
    for (name, life), since in sorted(world.ledger.lost_at.items()):
        client = world.members[name]
        if client.life != life or not client.alive or client.application.closing:
            continue
        held = max(client.paused_until, client.application.stalled_until, client.held_until)
        patience = _BACK_MS + 4 * (client.plan.listener_ms + client.application.slow_ms)
        if now - max(since, held) > patience and not world.is_disturbed(_BACK_MS):
            return f"{name} was removed at {since} ms and has not joined again"
    return None
