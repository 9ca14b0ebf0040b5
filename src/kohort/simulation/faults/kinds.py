"""The faults: each is one function of the world and the scenario's parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kohort.errors import ErrorCode
from kohort.simulation.faults import coordinator, members
from kohort.simulation.faults.members import client_of, refuse
from kohort.simulation.faults.strangers import send_stranger
from kohort.simulation.groups.client import Client
from kohort.simulation.runs.scenario import Fault, TopicPlan
from kohort.values import replace

if TYPE_CHECKING:
    from kohort.simulation.groups.world import World

# Faults whose `lasts_ms` is the change of a clock, or the bit that is hit.
_IS_NO_DURATION = frozenset({"wall_step", "clock_jump", "log_damage"})
# The longest time until members learn of changed topics.
_NEWS_MS = 35_000
# How long after a member was fenced its process restarts.
_FENCED_MS = 30_000
# How often to check whether a closing process has ended.
_CLOSING_MS = 100
Act = Callable[["World", Fault], None]
FAULTS: dict[str, Act] = {}


def fault(act: Act) -> Act:
    """Register a fault under the name of its function."""
    FAULTS[act.__name__] = act
    return act


fault(members.leave)
fault(members.leave_slowly)
fault(members.leave_lost)
fault(members.leave_refused)
fault(members.leave_beating)
fault(members.leave_early)
fault(members.refused_in_call)
fault(members.stall_unheard)
fault(coordinator.compact)
fault(coordinator.compact_while_loading)
fault(coordinator.log_damage)
fault(coordinator.wall_step)
fault(coordinator.failover)
fault(coordinator.coordinator_crash)
fault(coordinator.coordinator_dies_writing)
fault(coordinator.coordinator_pause)
fault(coordinator.append_fails)
fault(coordinator.inject)
fault(coordinator.inject_draft)
fault(coordinator.inject_assignment)
fault(coordinator.job_fails)


def plan_faults(world: World) -> None:
    """Schedule every fault of the scenario, except those of other simulators."""
    for each in world.scenario.faults:
        if each.kind in FAULTS:
            world.engine.at(each.at_ms, None, _happen, world, each)


def _happen(world: World, each: Fault) -> None:
    if world.calm:
        return
    world.note(f"fault {each.kind}")
    world.disturbed(0 if each.kind in _IS_NO_DURATION else each.lasts_ms)
    if world.tracing:
        text = f"{each.target} {each.detail} {each.lasts_ms or ''}".strip()
        world.trace.line(world.engine.now, "fault", each.kind, text)
    FAULTS[each.kind](world, each)


def stop_faults(world: World) -> int:
    """Prevent new faults; return the time at which the present ones end."""
    world.calm = True
    over = max(world.engine.now, world.disturbed_until) + _NEWS_MS
    world.lookup_error = None
    world.failing_assignors.clear()
    world.slow_assignors.clear()
    world.garbage.clear()
    world.repeat_next = world.failing_jobs = 0
    for node in world.coordinator.nodes:
        node.crash_at, node.refuse_appends = "", None
        node.answers.clear()
        over = max(over, node.paused_until)
    for client in world.living():
        over = max(over, client.paused_until, client.up_blocked_until, client.down_blocked_until)
        client.crash_at, client.looks_at_old_leader, client.on_beat = "", False, None
        client.mend()
        application = client.application
        application.listener, application.slow_ms = "", 0
        over = max(over, application.stalled_until)
    return over


# ------------------------------------------------------------------------------------- network


@fault
def reset(world: World, each: Fault) -> None:
    """Connections break; messages in flight may still arrive ("lingers")."""
    client = client_of(world, each)
    if client is not None:
        client.reset(lingers=each.detail == "lingers")


@fault
def half_open(world: World, each: Fault) -> None:
    """Connections die without either side noticing."""
    client = client_of(world, each)
    if client is not None:
        client.fall_silent()


@fault
def cut(world: World, each: Fault) -> None:
    """A member and the cluster cannot reach each other: "up", "down" or both ways."""
    client = client_of(world, each)
    if client is not None:
        until = world.engine.now + each.lasts_ms
        if each.detail != "down":
            client.up_blocked_until = max(client.up_blocked_until, until)
        if each.detail != "up":
            client.down_blocked_until = max(client.down_blocked_until, until)


@fault
def cut_all(world: World, each: Fault) -> None:
    """No member can reach the coordinator."""
    for client in world.living():
        until = world.engine.now + each.lasts_ms
        client.up_blocked_until = client.down_blocked_until = until


@fault
def repeat(world: World, _each: Fault) -> None:
    """The next requests arrive twice, the second time late."""
    world.repeat_next += 3


# ------------------------------------------------------------------------------------- processes


@fault
def kill(world: World, each: Fault) -> None:
    """A member's process dies, and restarts after a while, or never (0)."""
    client = client_of(world, each)
    if client is not None:
        client.die(each.lasts_ms)


@fault
def die_in_the_middle(world: World, each: Fault) -> None:
    """A member's process dies at its next work: "before" or "after sends"."""
    client = client_of(world, each)
    if client is not None:
        client.crash_at = each.detail


@fault
def pause(world: World, each: Fault) -> None:
    """A member's process is suspended, and resumes as a zombie."""
    client = client_of(world, each)
    if client is not None:
        client.paused_until = max(client.paused_until, world.engine.now + each.lasts_ms)


@fault
def stall(world: World, each: Fault) -> None:
    """An application does not poll for a while."""
    client = client_of(world, each)
    if client is not None:
        until = world.engine.now + each.lasts_ms
        client.application.stall(until)


@fault
def listener(world: World, each: Fault) -> None:
    """Calls into an application: "raises", "commits", "rejoins", or are slow."""
    client = client_of(world, each)
    if client is not None:
        client.application.listener = each.detail
        client.application.slow_ms = each.lasts_ms


@fault
def close(world: World, each: Fault) -> None:
    """An application closes its consumer; a new process starts later, or never (0)."""
    client = client_of(world, each)
    if client is not None and not client.application.closing:
        client.application.close()
        if each.lasts_ms:
            world.engine.after(each.lasts_ms, None, world.restart, each.target)


@fault
def restart(world: World, each: Fault) -> None:
    """An application closes its consumer, and a new process starts a while after it has ended."""
    client = client_of(world, each)
    if client is not None:
        if not client.application.closing:
            client.application.close()
        world.engine.after(each.lasts_ms, None, _start_again, world, each.target)


def _start_again(world: World, name: str) -> None:
    if world.members[name].alive:
        world.engine.after(_CLOSING_MS, None, _start_again, world, name)
    else:
        world.restart(name)


@fault
def unsubscribe(world: World, each: Fault) -> None:
    """An application unsubscribes for a while."""
    client = client_of(world, each)
    if client is not None and not client.application.closing:
        client.application.unsubscribe()
        application = client.application
        world.engine.after(each.lasts_ms, client, application.subscribe_again)


@fault
def resubscribe(world: World, each: Fault) -> None:
    """An application subscribes to other topics (`detail`, separated by commas)."""
    client = client_of(world, each)
    if client is not None and not client.application.closing:
        client.application.subscribe(tuple(each.detail.split(",")))


@fault
def rejoin(world: World, each: Fault) -> None:
    """An application asks for a rebalance (KIP-568)."""
    client = client_of(world, each)
    if client is not None:
        client.application.rejoin()


@fault
def twin(world: World, each: Fault) -> None:
    """A second process with the same group instance id starts."""
    plan = world.plans.get(each.target)
    if plan is not None and plan.instance:
        name = f"{plan.name}-twin"
        world.add(replace(plan, name=name, start_ms=0))


@fault
def upgrade(world: World, each: Fault) -> None:
    """A process is replaced by one with other assignors (`detail`, separated by commas)."""
    client = client_of(world, each)
    # A cooperative group always refuses a member with none of its assignors: an operator's mistake
    # that waiting does not fix.
    if client is not None and client.is_eager and client.protocol.is_classic:
        world.change_plan(each.target, assignors=tuple(each.detail.split(",")))
    if client is not None and not client.application.closing:
        client.application.close()
        world.engine.after(each.lasts_ms or 1_000, None, world.restart, each.target)


@fault
def migrate(world: World, each: Fault) -> None:
    """A process is replaced by one of another protocol (`detail`): a rolling bounce."""
    client = client_of(world, each)
    if client is not None and not client.application.closing:
        world.change_plan(each.target, protocol=each.detail)
        restart(world, each)


@fault
def assignor_raises(world: World, each: Fault) -> None:
    """The next assignment that a member computes as leader fails."""
    world.failing_assignors.add(each.target)


@fault
def long_assignment(world: World, each: Fault) -> None:
    """A leader assigns slowly; a heartbeat in that time is answered with an error (`detail`)."""
    client = client_of(world, each)
    if client is not None:
        world.slow_assignors.update(other.name for other in world.living())
        client.application.rejoin()
        world.engine.after(
            each.lasts_ms, client, refuse, client, ErrorCode[each.detail], "Heartbeat"
        )


@fault
def fence(world: World, each: Fault) -> None:
    """A commit is fenced by the instance id; a new process starts later."""
    client = client_of(world, each)
    if client is not None:
        refuse(client, ErrorCode.FENCED_INSTANCE_ID, "OffsetCommit")
        world.engine.after(_FENCED_MS, None, world.restart, each.target)


@fault
def assignor_garbage(world: World, each: Fault) -> None:
    """The next assignment that a member computes for the coordinator is invalid (`detail`: how)."""
    world.garbage[each.target] = each.detail


@fault
def computation_breaks(world: World, each: Fault) -> None:
    """A member's connections break while it computes its group's assignment."""
    client = client_of(world, each)
    if client is not None:
        client.breaks_computing = True


@fault
def repattern(world: World, each: Fault) -> None:
    """An application subscribes to a regular expression (`detail`)."""
    client = client_of(world, each)
    if client is not None and client.protocol.has_epochs and not client.application.closing:
        client.application.subscribe(client.plan.topics, each.detail)


# ------------------------------------------------------------------------------------- time


@fault
def clock_jump(world: World, each: Fault) -> None:
    """A member's clock jumps forward."""
    client = client_of(world, each)
    if client is not None:
        client.skip(each.lasts_ms)


# ------------------------------------------------------------------------------------- coordinator


@fault
def lookups_fail(world: World, each: Fault) -> None:
    """FindCoordinator answers with an error for a while."""
    world.lookup_error = ErrorCode[each.detail or "COORDINATOR_NOT_AVAILABLE"]
    world.engine.after(each.lasts_ms, None, _lookups_work, world)


def _lookups_work(world: World) -> None:
    world.lookup_error = None


@fault
def stale_lookups(world: World, each: Fault) -> None:
    """A member's look-ups find the old leader for a while."""
    client = client_of(world, each)
    if client is not None:
        client.looks_at_old_leader = True
        world.engine.after(each.lasts_ms, client, _look_up_to_date, client)


def _look_up_to_date(client: Client) -> None:
    client.looks_at_old_leader = False


@fault
def stranger(world: World, each: Fault) -> None:
    """A client that is not a member of the group sends a request (`detail`: which)."""
    for kind in each.detail.split("+"):
        send_stranger(world, kind, each.target)


@fault
def draft_stranger(world: World, each: Fault) -> None:
    """A stranger sends a request of the draft protocol (`detail`: which)."""
    send_stranger(world, each.detail, each.target)


@fault
def consumer_stranger(world: World, each: Fault) -> None:
    """A stranger sends a request of KIP-848 (`detail`: which)."""
    send_stranger(world, each.detail, each.target)


@fault
def shrink_group(world: World, each: Fault) -> None:
    """`group.max.size` is lowered; the next load finds the group too large (C72)."""
    world.config = replace(world.config, group_max_size=int(each.detail))
    world.coordinator.move(100, 0)
    world.engine.after(each.lasts_ms, None, _grow_back, world)


def _grow_back(world: World) -> None:
    world.config = replace(world.config, group_max_size=world.scenario.group_max_size)
    world.coordinator.move(100, 0)


# ------------------------------------------------------------------------------------- topics


@fault
def grow(world: World, each: Fault) -> None:
    """A topic gets more partitions; members learn of them one after the other."""
    world.topics.grow(each.target, int(each.detail or 1))
    world.spread_metadata(each.lasts_ms, each.target)


@fault
def delete_topic(world: World, each: Fault) -> None:
    """A topic is deleted, and recreated after a while, or never (0)."""
    topic = world.topics.present.get(each.target)
    if topic is None:
        return
    partitions = len(topic.ends)
    world.delete_topic(each.target)
    world.spread_metadata(2_000, each.target)
    if each.lasts_ms:
        world.engine.after(each.lasts_ms, None, world.create_topic, each.target, partitions)


@fault
def topic_comes(world: World, each: Fault) -> None:
    """A topic (`detail`) is created, for a while or for good (0)."""
    world.create_topic(each.detail, 2)
    world.produce(TopicPlan(name=each.detail, partitions=2))
    if each.lasts_ms:
        world.engine.after(each.lasts_ms, None, world.delete_topic, each.detail)
