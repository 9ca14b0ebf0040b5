"""The state machine of a controller candidate: one table over the region's phases.

The phase is part of the fold. Timers and the described group belong to one candidate; the next
candidate starts without them. A candidate decides from the log alone, and only once the log shows
the result of its last decision.
"""

from __future__ import annotations

from immutables import Map
from msgspec import Struct

from kohort.group.machine import Row, Table, row
from kohort.region.machines.controller_session import (
    DRAIN,
    RESET,
    ControllerConfig,
    ControllerDecision,
    ControllerSession,
)
from kohort.region.machines.describing import strangers_among, told_stranger
from kohort.region.machines.events import (
    Appended,
    Asked,
    Chosen,
    ControllerEffects,
    ControllerInput,
    Folded,
    GroupDescribed,
    Publish,
    PublishDone,
    PublishFailed,
    Tick,
    Trim,
)
from kohort.region.machines.records import (
    PERIODIC,
    Ask,
    Complete,
    Controller,
    Drain,
    Evict,
    Exhausted,
    OperatorId,
    Published,
    RegionRecord,
    RegionSettled,
    Reset,
    Snapshot,
)
from kohort.region.machines.snapshot import digest, dump
from kohort.region.machines.state import Phase
from kohort.values import replace

__all__ = ["CONTROLLER", "ControllerConfig", "ControllerMachine", "ControllerSession"]


class Noticed(Struct, frozen=True):
    """The log was read; appends may be in flight."""


class Free(Struct, frozen=True):
    """The log was read, and shows the result of every decision."""


class ControllerMachine:
    """One candidate.

    Attributes:
        session: Its memory; the shell installs the session of each result.
    """

    def __init__(self, config: ControllerConfig) -> None:
        """Create a candidate that is not chosen yet."""
        self.config = config
        self.session = ControllerSession()

    def install(self, effects: ControllerEffects) -> None:
        """Adopt the session of a decision."""
        assert isinstance(effects.session, ControllerSession)
        self.session = effects.session

    def decide(self, event: ControllerInput, now: int) -> ControllerEffects:
        """Return the effects of an input without changing anything.

        Args:
            event: What happened.
            now: Time in milliseconds from a monotonic clock.
        """
        decision = ControllerDecision(config=self.config, session=self.session, now=now)
        CONTROLLER.run(decision, type(event), event)
        CONTROLLER.run(decision, Noticed, Noticed())
        if decision.is_free:
            CONTROLLER.run(decision, Free, Free())
        return decision.effects()


# --------------------------------------------------------------------------------------- the inputs


def take_fold(decision: ControllerDecision, event: Folded) -> None:
    """Store the state of the region, what it waits for, and since when."""
    session, folded, now = decision.session, event.state, decision.now
    phase = folded.phase
    wait = ("", 0)
    if phase is Phase.DRAINING:
        wait = (DRAIN, folded.checkpoint)
    elif phase is Phase.RESETTING:
        wait = (RESET, folded.attempt)
    progress = (folded.completed, folded.attempt, phase in (Phase.RESETTING, Phase.UNHEALTHY))
    decision.session = replace(
        session,
        folded=folded,
        wait=wait,
        waiting_since=session.waiting_since if wait == session.wait else now,
        progress=progress,
        progress_at=session.progress_at if progress == session.progress else now,
        gone=frozenset(each for each in session.gone if folded.active(each) is not None),
    )


def end_append(decision: ControllerDecision, event: Appended) -> None:
    """Store how far to read until the result is known."""
    session = decision.session
    if event.token == session.token:
        read_to = max(session.read_to, event.read_to)
        decision.session = replace(session, in_flight=False, read_to=read_to)


def be_chosen(decision: ControllerDecision, event: Chosen) -> None:
    """Become the chosen candidate, or stop being it; waits start again."""
    decision.session = replace(
        decision.session,
        is_chosen=event.is_chosen,
        waiting_since=decision.now,
        progress_at=decision.now,
        missing=Map(),
        gone=frozenset(),
    )


def look_at_group(decision: ControllerDecision, event: GroupDescribed) -> None:
    """Find operators that have left the group, and members that are not operators."""
    session, now, config = decision.session, decision.now, decision.config
    present = {each.client_id for each in event.members}
    seen, missing, gone = set[OperatorId](), dict[OperatorId, int](), set[OperatorId]()
    for each in decision.folded.operators.values():
        if each.client_id in present:
            seen.add(each.id)
            continue
        since = missing[each.id] = session.missing.get(each.id, now)
        known = each.id in session.seen or bool(each.owned)
        if now - since >= (config.gone_ms if known else config.join_ms):
            gone.add(each.id)
    decision.session = replace(
        session,
        members=event.members,
        seen=frozenset(seen | {each for each in session.seen if each in missing}),
        missing=Map(missing),
        gone=frozenset(gone),
        strangers=_strangers(decision, event),
    )


def _strangers(decision: ControllerDecision, event: GroupDescribed) -> Map[str, int]:
    """Report each member that is not an operator once; -1 marks a reported one."""
    config, before = decision.config, decision.session.strangers
    found: dict[str, int] = {}
    for each in strangers_among(event.members, decision.folded):
        since = before.get(each.client_id, decision.now)
        if since >= 0 and decision.now - since >= config.stranger_ms:
            decision.note("stranger in the group", told_stranger(each), is_warning=True)
            since = -1
        found[each.client_id] = since
    return Map(found)


def note_published(decision: ControllerDecision, event: PublishDone) -> None:
    """Schedule a record of it for the log."""
    decision.session = replace(decision.session, publishing=0, published=event.checkpoint)


def publish_later(decision: ControllerDecision, event: PublishFailed) -> None:
    """Schedule a retry."""
    text = f"checkpoint {event.checkpoint} is not published yet: {event.cause}"
    decision.note("publish failed", text, is_warning=True)
    later = decision.now + decision.config.publish_retry_ms
    decision.session = replace(decision.session, publishing=0, publish_after=later)


def take_ask(decision: ControllerDecision, event: Asked) -> None:
    """Store the request until it can be written to the log."""
    decision.session = replace(decision.session, asks=(*decision.session.asks, event))


def pass_over(_decision: ControllerDecision, _event: object) -> None:
    """Do nothing."""


def rest(_decision: ControllerDecision, _event: object) -> None:
    """Do nothing."""


# -------------------------------------------------------------------------- actions in every phase


def may_publish(decision: ControllerDecision, _event: object) -> bool:
    """Whether a complete checkpoint waits to be published."""
    session, folded = decision.session, decision.folded
    if not session.is_chosen or not decision.is_controller or not folded.unpublished:
        return False
    waits = session.publishing or decision.now < session.publish_after
    return not waits and folded.unpublished[0].checkpoint > session.published


def publish(decision: ControllerDecision, _event: object) -> None:
    """Publish the oldest waiting checkpoint."""
    oldest = decision.folded.unpublished[0]
    decision.publish = Publish(oldest.checkpoint, oldest.outputs, decision.folded.shown)
    decision.session = replace(decision.session, publishing=oldest.checkpoint)


def has_asks(decision: ControllerDecision, _event: object) -> bool:
    """Whether this process has requests to write."""
    return bool(decision.session.asks)


def ask(decision: ControllerDecision, _event: object) -> None:
    """Write the request to the log, with the current checkpoint and attempt."""
    folded = decision.folded
    writer, checkpoint = decision.config.incarnation, folded.checkpoint + 1
    asks = [
        Ask(writer, each.what, checkpoint, folded.attempt, each.force, each.why)
        for each in decision.session.asks
    ]
    decision.session = replace(decision.session, asks=())
    decision.decides(*asks)


def is_not_chosen(decision: ControllerDecision, _event: object) -> bool:
    """Whether the group has not chosen this candidate."""
    return not decision.session.is_chosen


def is_not_controller(decision: ControllerDecision, _event: object) -> bool:
    """Whether the log names another controller, or none."""
    return not decision.is_controller


def take_over(decision: ControllerDecision, _event: object) -> None:
    """Become the next controller, unless another candidate is faster."""
    folded, config = decision.folded, decision.config
    records: list[RegionRecord] = []
    if folded.settings is None:
        records.append(RegionSettled(config.incarnation, config.settings))
    records.append(Controller(folded.epoch + 1, config.incarnation))
    decision.decides(*records)


def is_visible(decision: ControllerDecision, _event: object) -> bool:
    """Whether a checkpoint is published but the log does not show it yet."""
    unpublished = decision.folded.unpublished
    return bool(unpublished) and unpublished[0].checkpoint == decision.session.published


def say_published(decision: ControllerDecision, _event: object) -> None:
    """Write to the log that the checkpoint is published."""
    epoch, who = decision.folded.epoch, decision.config.incarnation
    has_output = bool(decision.folded.unpublished[0].outputs)
    decision.decides(Published(epoch, who, decision.session.published, has_output))


def has_gone(decision: ControllerDecision, _event: object) -> bool:
    """Whether an active operator has left the group."""
    return bool(decision.session.gone)


def evict_gone(decision: ControllerDecision, _event: object) -> None:
    """Evict the operators that left the group without a record in the log."""
    _evict(decision, sorted(decision.session.gone), "it is no longer in the group")


def _evict(decision: ControllerDecision, operators: list[OperatorId], why: str) -> None:
    epoch, who = decision.folded.epoch, decision.config.incarnation
    decision.decides(*(Evict(epoch, who, each, why) for each in operators))
    active = (decision.folded.active(each) for each in operators)
    clients = {each.client_id for each in active if each is not None}
    members = decision.session.members
    decision.removed += [each.member_id for each in members if each.client_id in clients]


def is_snapshot_due(decision: ControllerDecision, _event: object) -> bool:
    """Whether the log has grown enough since the last snapshot."""
    folded = decision.folded
    return folded.offset - folded.snapshot_before >= decision.config.snapshot_every


def take_snapshot(decision: ControllerDecision, _event: object) -> None:
    """Write a snapshot of the fold."""
    folded = decision.folded
    text = dump(folded)
    who = decision.config.incarnation
    decision.decides(Snapshot(folded.epoch, who, folded.offset, text, digest(text)))


def may_trim(decision: ControllerDecision, _event: object) -> bool:
    """Whether the log has a snapshot that replaces records."""
    return decision.folded.snapshot_before > decision.session.trimmed


def trim(decision: ControllerDecision, _event: object) -> None:
    """Remove the records that the snapshot replaces."""
    before, token = decision.folded.snapshot_before, decision.session.token + 1
    decision.trim = Trim(token, before)
    decision.session = replace(decision.session, token=token, in_flight=True, trimmed=before)


# --------------------------------------------------------------------------------- actions by phase


def is_spent(decision: ControllerDecision, _event: object) -> bool:
    """Whether a reset is needed after too many consecutive resets."""
    folded = decision.folded
    needs = bool(folded.must_reset) or is_drain_slow(decision, _event)
    return needs and not folded.forced and folded.resets >= folded.max_resets


def exhaust(decision: ControllerDecision, _event: object) -> None:
    """Give up until a reset is forced."""
    folded = decision.folded
    why = folded.must_reset or _slowest(decision)
    said = f"{folded.resets} resets in a row, the last need: {why}"
    decision.note("exhausted", said)
    decision.decides(Exhausted(folded.epoch, decision.config.incarnation, folded.attempt, said))


def must_reset(decision: ControllerDecision, _event: object) -> bool:
    """Whether an event requires a reset."""
    return bool(decision.folded.must_reset)


def reset(decision: ControllerDecision, _event: object) -> None:
    """Send all operators back to the last complete checkpoint."""
    folded = decision.folded
    _reset(decision, folded.must_reset, forced=folded.forced)


def _reset(decision: ControllerDecision, why: str, *, forced: bool) -> None:
    folded = decision.folded
    decision.note("reset", why)
    decision.decides(
        Reset(folded.epoch, decision.config.incarnation, folded.attempt + 1, forced, why)
    )


def is_forced(decision: ControllerDecision, _event: object) -> bool:
    """Whether a forced reset was asked for."""
    return bool(decision.folded.must_reset) and decision.folded.forced


def has_all(decision: ControllerDecision, _event: object) -> bool:
    """Whether all participants have contributed."""
    drain = decision.folded.drain
    return drain is not None and not drain.missing


def complete(decision: ControllerDecision, _event: object) -> None:
    """Complete the checkpoint."""
    folded = decision.folded
    who = decision.config.incarnation
    decision.decides(Complete(folded.epoch, who, folded.checkpoint, folded.attempt))


def is_drain_slow(decision: ControllerDecision, _event: object) -> bool:
    """Whether the checkpoint takes too long."""
    session = decision.session
    waited = decision.now - session.waiting_since
    return session.wait[0] == DRAIN and waited >= decision.settings.drain_timeout_ms


def _slowest(decision: ControllerDecision) -> str:
    folded = decision.folded
    missing = ", ".join(map(str, folded.drain.missing)) if folded.drain is not None else ""
    limit = decision.settings.drain_timeout_ms
    return f"checkpoint {folded.checkpoint} took longer than {limit} ms: {missing} did not answer"


def reset_slow(decision: ControllerDecision, _event: object) -> None:
    """Reset again; the reason names the slow operators."""
    _reset(decision, _slowest(decision), forced=False)


def is_reset_slow(decision: ControllerDecision, _event: object) -> bool:
    """Whether the reset takes too long."""
    session = decision.session
    waited = decision.now - session.waiting_since
    return session.wait[0] == RESET and waited >= decision.settings.reset_timeout_ms


def evict_slow(decision: ControllerDecision, _event: object) -> None:
    """Continue without the operators that do not finish the reset."""
    slow = sorted(each.id for each in decision.folded.awaited())
    limit = decision.settings.reset_timeout_ms
    _evict(decision, slow, f"it did not finish a reset within {limit} ms")


def is_drain_due(decision: ControllerDecision, _event: object) -> bool:
    """Whether a partition leaves, a checkpoint was asked for, or the period is over."""
    folded, settings = decision.folded, decision.settings
    if len(folded.unpublished) >= decision.config.unpublished_max:
        return False
    if folded.asked_drain or any(each.leaving for each in folded.partitions.values()):
        return True
    if settings.mode != PERIODIC or not any(e.owned for e in folded.operators.values()):
        return False
    return decision.now >= decision.session.progress_at + settings.period_ms


def drain(decision: ControllerDecision, _event: object) -> None:
    """Begin a checkpoint."""
    folded = decision.folded
    who = decision.config.incarnation
    decision.decides(Drain(folded.epoch, who, folded.checkpoint + 1, folded.attempt))


Rows = tuple[Row[Phase, ControllerDecision], ...]

ALL = tuple(Phase)
STARTED = Phase.STARTED
DRAINING = Phase.DRAINING
RESETTING = Phase.RESETTING
UNHEALTHY = Phase.UNHEALTHY
EXHAUSTED = Phase.MAXIMUM_RESET_ATTEMPTS_REACHED
PROCESSING = (Phase.PROCESSING, Phase.CHECKPOINT_PENDING)
GOING_ON = (*PROCESSING, DRAINING, RESETTING)

# An input may find a region in any other phase.
INPUT_ROWS: Rows = (
    row(ALL, Folded, take_fold, to=ALL),
    row(ALL, Appended, end_append),
    row(ALL, Tick, pass_over),
    row(ALL, Chosen, be_chosen),
    row(ALL, GroupDescribed, look_at_group, rule="A1"),
    row(ALL, PublishDone, note_published),
    row(ALL, PublishFailed, publish_later),
    row(ALL, Asked, take_ask),
)

CONTROLLER_ROWS: Rows = (
    row(ALL, Noticed, publish, when=may_publish),
    row(ALL, Noticed, rest),
    row(ALL, Free, ask, when=has_asks),
    row(ALL, Free, rest, when=is_not_chosen),
    row(ALL, Free, take_over, when=is_not_controller, rule="A2"),
    row(ALL, Free, say_published, when=is_visible),
    row(ALL, Free, evict_gone, when=has_gone),
    row(GOING_ON, Free, exhaust, when=is_spent, rule="A71"),
    row(GOING_ON, Free, reset, when=must_reset, rule="A37"),
    row(EXHAUSTED, Free, reset, when=is_forced, rule="A38"),
    row(DRAINING, Free, complete, when=has_all),
    row(DRAINING, Free, reset_slow, when=is_drain_slow),
    row(RESETTING, Free, evict_slow, when=is_reset_slow, rule="A64"),
    row(PROCESSING, Free, drain, when=is_drain_due),
    row(ALL, Free, take_snapshot, when=is_snapshot_due),
    row(ALL, Free, trim, when=may_trim),
    row(ALL, Free, rest),
)

CONTROLLER: Table[Phase, ControllerDecision] = Table(
    "region controller",
    Phase,
    INPUT_ROWS + CONTROLLER_ROWS,
    total=(
        Folded,
        Appended,
        Tick,
        Chosen,
        GroupDescribed,
        PublishDone,
        PublishFailed,
        Asked,
        Noticed,
        Free,
    ),
)
