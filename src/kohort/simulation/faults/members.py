"""Faults of members: how their applications leave, wrong assignments, and what an operator mends.

Applications leave by several calls in a row, and during other faults. That takes as long as the
listener that gives partitions up. Another call, an answer or news of the coordinator in that time
meets the member in a state that lasts only a moment, so chance alone would hardly ever bring the
two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.group.member.events import CoordinatorLost
from kohort.group.subscription import decode_assignment, encode_assignment
from kohort.simulation.groups.base import BaseClient, BaseWorld
from kohort.simulation.groups.ledger import GROUP
from kohort.simulation.groups.protocols import CLASSIC, MIGRATION
from kohort.types import TopicPartition
from kohort.values import replace

if TYPE_CHECKING:
    from kohort.simulation.runs.scenario import Fault

_BACK_MS = 30_000
_RESTART_MS = 1_000
# In this time every member sends a heartbeat.
_BEFORE_MS = 6_000
# The shortest time of a slow listener here: long enough for more than one heartbeat.
_SLOW_MS = 3_500
# A coordinator lost for a shorter time is found by the first look-up.
_FOUND_AGAIN_MS = 10_000
BEATS = ("Heartbeat", "DraftHeartbeat", "ConsumerGroupHeartbeat")

GARBAGE = ("twice", "to nobody", "not there", "of no topic")

# The assignors that the operator may add, in order of preference.
_KNOWN = ("cooperative-sticky", "roundrobin", "range")


def client_of(world: BaseWorld, each: Fault) -> BaseClient | None:
    """Return the target of a fault, None when no member is running."""
    client = world.members.get(each.target)
    return client if client is not None and client.alive else None


def leave(world: BaseWorld, each: Fault) -> None:
    """An application makes several calls at once: "unsubscribe", "subscribe", "close", with "+"."""
    client = client_of(world, each)
    if client is None or client.application.closing:
        return
    application = client.application
    calls = {
        "unsubscribe": application.unsubscribe,
        "subscribe": application.subscribe_again,
        "close": application.close,
    }
    for number, call in enumerate(each.detail.split("+")):
        world.engine.after(number * each.lasts_ms, client, calls[call])
    world.engine.after(_BACK_MS, None, world.restart, each.target)


def leave_slowly(world: BaseWorld, each: Fault) -> None:
    """As `leave`, with a slow listener, so that the later calls find the member leaving."""
    client = client_of(world, each)
    if client is not None:
        _slow_down(client)
        leave(world, each)


def leave_lost(world: BaseWorld, each: Fault) -> None:
    """As `leave`, without a coordinator: connections break, and look-ups may fail."""
    client = client_of(world, each)
    if client is not None:
        unreachable_ms = max(each.lasts_ms - _FOUND_AGAIN_MS, 0)
        client.down_blocked_until = world.engine.now + unreachable_ms
        client.reset(lingers=False)
        client.tell(CoordinatorLost("its connections broke"))
        leave(world, each)


def leave_refused(world: BaseWorld, each: Fault) -> None:
    """Leave slowly, while the next heartbeat gets an authorization error."""
    client = client_of(world, each)
    if client is not None:
        leave_slowly(world, each)
        refuse(client, ErrorCode.GROUP_AUTHORIZATION_FAILED, *BEATS)


def leave_beating(world: BaseWorld, each: Fault) -> None:
    """An application leaves with a heartbeat in flight, which gets an error (`detail`)."""
    client = client_of(world, each)
    if client is not None:
        calls = replace(each, detail="unsubscribe+subscribe")
        client.on_beat = partial(leave, world, calls)
        refuse(client, ErrorCode[each.detail], *BEATS)


def leave_early(world: BaseWorld, each: Fault) -> None:
    """A process ends, restarts, and leaves before or just after its join is answered."""
    client = client_of(world, each)
    if client is not None:
        client.die(0)
        world.engine.after(_RESTART_MS, None, world.restart, each.target)
        world.engine.after(_RESTART_MS + each.lasts_ms, None, leave, world, each)


def stall_unheard(world: BaseWorld, each: Fault) -> None:
    """An application changes its subscription (`detail`), and then does not poll for too long.

    Before the member notices that, its connections die silently, and the application polls again
    soon after. So the member cannot send its leave request yet, and still has callbacks to run.
    """
    client = client_of(world, each)
    if client is None or client.application.closing:
        return
    application, longest = client.application, client.plan.max_poll_interval_ms
    application.subscribe(tuple(each.detail.split(",")))
    application.stall(world.engine.now + longest + each.lasts_ms)
    # The last poll was a quarter of that time ago, at most.
    world.engine.after(longest * 3 // 4 - _BEFORE_MS, client, _fall_silent, client)


def _fall_silent(client: BaseClient) -> None:
    if not client.world.calm:
        client.fall_silent()


def refused_in_call(world: BaseWorld, each: Fault) -> None:
    """A request is refused during a slow call that assigns partitions."""
    client = client_of(world, each)
    if client is not None:
        client.application.listener = "is refused"
        _slow_down(client)


def refuse(client: BaseClient, code: ErrorCode, *kinds: str) -> None:
    """Answer the member's next request of each of these kinds with an error."""
    if not client.world.calm:
        for node in client.world.coordinator.nodes:
            node.answers.update({f"{client.name} {kind}Request": code for kind in kinds})


def _slow_down(client: BaseClient) -> None:
    application = client.application
    application.slow_ms = max(application.slow_ms, _SLOW_MS)


def spoiled(assignments: Mapping[str, bytes], kind: str) -> dict[str, bytes]:
    """Return assignments like those of an assignor with a bug.

    Args:
        assignments: The right assignment of each member.
        kind: The bug, one of `GARBAGE`.
    """
    given = {each: decode_assignment(data)[0] for each, data in assignments.items()}
    everything = frozenset().union(*given.values())
    if kind == "twice":
        given = dict.fromkeys(given, everything)
    elif kind == "to nobody":
        given["nobody"] = everything
    else:
        topic = min((each.topic for each in everything), default="flights")
        wrong = TopicPartition("nowhere" if kind == "of no topic" else topic, 9_999)
        first = min(given)
        given[first] |= {wrong}
    return {each: encode_assignment(partitions) for each, partitions in given.items()}


def remedy(client: BaseClient, error: KohortError) -> None:
    """Reconfigure a member so that its group accepts its next life.

    A group that may not change its protocol refuses members of the other one. After a load, the
    coordinator knows only the assignor in use, so it refuses a member without that assignor until
    the group rebalances, even if all other members have both.
    """
    if not isinstance(error, KafkaError):
        return
    world, names = client.world, {each.name for each in client.assignors}
    refused = error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if error.code == ErrorCode.GROUP_ID_NOT_FOUND and world.scenario.protocol == MIGRATION:
        world.note("migration refused")
        world.change_plan(client.name, protocol=CLASSIC.name)
    elif refused and names and names <= set(_KNOWN):
        world.note("assignor added")
        listed = names | _listed(world) | _in_use(world)
        assignors = tuple(name for name in _KNOWN if name in listed)
        world.change_plan(client.name, assignors=assignors)


def _listed(world: BaseWorld) -> set[str]:
    """Return the assignors in the configuration of any member."""
    return {name for plan in world.plans.values() for name in plan.assignors}


def _in_use(world: BaseWorld) -> set[str]:
    """Return the assignor that a tool shows for the group, even if no member lists it now."""
    node = world.coordinator.ready
    stored = node.shard.log.groups.get(GROUP) if node is not None else None
    return {stored.protocol} if stored and stored.protocol else set()
