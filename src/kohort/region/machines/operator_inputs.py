"""How an operator reacts to each input, and what it may do at any time.

Their order is in the table in `operator`.
"""

from __future__ import annotations

from immutables import Map
from msgspec.structs import asdict

from kohort.region.errors import DifferentRegionError, OperatorFencedError
from kohort.region.machines import operator_log as log
from kohort.region.machines.describing import told_differences, what_it_waits_for
from kohort.region.machines.events import (
    Appended,
    Assigned,
    Close,
    CutFailed,
    CutMade,
    Delivered,
    Discarded,
    Folded,
    PartitionsLost,
    Revoked,
    StartFound,
    Stopped,
    WentHealthy,
    WentUnhealthy,
)
from kohort.region.machines.operator_session import (
    MERGE_MAX_MS,
    NONE,
    OperatorDecision,
    OperatorSession,
    OperatorState,
)
from kohort.region.machines.records import Contribution, Partitions
from kohort.values import replace

# If there are more partitions than this, their names are not listed.
_NAMES_MAX = 10


def take_fold(decision: OperatorDecision, event: Folded) -> None:
    """Store the newest state of the region."""
    decision.evicted = event.evicted
    decision.session = replace(decision.session, folded=event.state)


def end_append(decision: OperatorDecision, event: Appended) -> None:
    """Store how far to read until the result is known."""
    session = decision.session
    if event.token == session.token:
        read_to = max(session.read_to, event.read_to)
        decision.session = replace(session, in_flight=False, read_to=read_to)


def take_assignment(decision: OperatorDecision, event: Assigned) -> None:
    """Add partitions to the assignment."""
    session = decision.session
    assigned = session.assigned | event.partitions
    decision.session = replace(session, assigned=assigned, counts=event.counts or session.counts)


def take_back(decision: OperatorDecision, event: Revoked) -> None:
    """Stop reading revoked partitions; the listener waits until they are handed over."""
    session = decision.session
    given = event.deadline
    usual = decision.now + decision.config.settings.drain_timeout_ms
    decision.session = replace(
        session,
        revoking=session.revoking | event.partitions,
        is_holding=True,
        deadline=usual if given is None else min(given, usual),
    )
    decision.stop(event.partitions)


def take_back_idle(decision: OperatorDecision, event: Revoked) -> None:
    """Drop revoked partitions, about which the log has no records."""
    left = decision.session.assigned - event.partitions
    decision.session = replace(decision.session, assigned=left)
    decision.ends_revocation = True


def lose(decision: OperatorDecision, event: PartitionsLost) -> None:
    """Drop lost partitions: another operator may own them, so deliveries must not count."""
    session = decision.session
    mine = decision.owned | decision.awaited
    dirty = {each for each in event.partitions & mine if not decision.is_clean(each)}
    dirty |= {
        each
        for each in event.partitions & frozenset(session.reading)
        if not session.reading[each].is_stopped
    }
    decision.session = replace(
        session,
        assigned=session.assigned - event.partitions,
        revoking=session.revoking - event.partitions,
        lost=session.lost | dirty,
    )
    decision.stop(event.partitions)
    if dirty:
        log.wait_for_reset(decision, decision.session.needs_reset)


def lose_idle(decision: OperatorDecision, event: PartitionsLost) -> None:
    """Drop lost partitions, about which the log has no records."""
    left = decision.session.assigned - event.partitions
    decision.session = replace(decision.session, assigned=left)


def keep_start(decision: OperatorDecision, event: StartFound) -> None:
    """Keep a start position until it is written to the log, unless the log already has one."""
    found = decision.session.found.set(event.partition, event.offset)
    decision.session = replace(decision.session, found=found)


def count_delivered(decision: OperatorDecision, event: Delivered) -> None:
    """Store how far records were delivered to the function."""
    session = decision.session
    known = session.reading[event.partition]
    reading = session.reading.set(event.partition, replace(known, next=event.next_offset))
    state = OperatorState.RECORDS_FETCHED
    decision.session = replace(session, reading=reading, state=state)


def count_late(decision: OperatorDecision, event: Delivered) -> None:
    """Store a delivery that a reset will undo."""
    session = decision.session
    known = session.reading[event.partition]
    reading = session.reading.set(event.partition, replace(known, next=event.next_offset))
    decision.session = replace(session, reading=reading)


def is_of_this_read(decision: OperatorDecision, event: Delivered) -> bool:
    """Whether the delivery belongs to the current `Read` of its partition."""
    known = decision.session.reading.get(event.partition)
    return known is not None and known.read == event.read


def note_stopped(decision: OperatorDecision, event: Stopped) -> None:
    """Note that reading has stopped: the deliveries are now final."""
    reading = decision.session.reading
    for each in event.partitions & frozenset(reading):
        if reading[each].is_stopping:
            reading = reading.set(each, replace(reading[each], is_stopped=True))
    decision.session = replace(decision.session, reading=reading)


def is_of_this_cut(decision: OperatorDecision, event: CutMade | CutFailed) -> bool:
    """Whether this is the requested cut."""
    cut = decision.session.cut
    return cut is not None and (cut.checkpoint, cut.attempt) == (event.checkpoint, event.attempt)


def take_cut(decision: OperatorDecision, event: CutMade) -> None:
    """Turn a cut into a contribution; unread partitions contribute their start offset."""
    session, me = decision.session, decision.me
    drain = decision.folded.drain
    must = NONE
    if drain is not None and me is not None:
        must = drain.participants.get(me.id, NONE) & me.owned
    # A partition that was given back and claimed again may have its old position in the cut.
    offsets = {
        each: at
        for each, at in event.positions.items()
        if each in session.reading and session.reading[each].read == event.reads[each]
    }
    # A newer `Read` starts there; the next cut contains its deliveries.
    for each in (*session.reading, *must):
        base = decision.folded.partition(each).base
        if base is not None:
            offsets.setdefault(each, base)
    decision.session = replace(
        session,
        cut=None,
        contribution=Contribution(
            decision.config.id,
            0,
            event.checkpoint,
            event.attempt,
            Map(offsets),
            Map({each: ref for each, ref in event.states.items() if each in offsets}),
            session.releases & frozenset(offsets),
            event.output,
        ),
    )


def give_up_cut(decision: OperatorDecision, event: CutFailed) -> None:
    """Return to the last complete checkpoint, together with the whole region."""
    why = f"{decision.config.id} gave up checkpoint {event.checkpoint}: {event.why}"
    decision.warn("drain failed", f"{why}. The region returns to {_last(decision)}")
    log.wait_for_reset(decision, why)


def finish_discarding(decision: OperatorDecision, _event: Discarded) -> None:
    """Note that everything from earlier attempts is discarded."""
    state = OperatorState.RESET_COMPLETE
    decision.session = replace(decision.session, state=state, merge_due=None)


def is_of_this_attempt(decision: OperatorDecision, event: Discarded) -> bool:
    """Whether the discard was for the current attempt."""
    return event.attempt == decision.session.attempt


def fall_ill(decision: OperatorDecision, event: WentUnhealthy) -> None:
    """Stop delivering; the reset that follows undoes the deliveries."""
    log.wait_for_reset(decision, "")
    remember_illness(decision, event)


def remember_illness(decision: OperatorDecision, event: WentUnhealthy) -> None:
    """Keep the problem until it can be written to the log."""
    decision.session = replace(decision.session, ill=event.why or "for no reason given")


def recover(decision: OperatorDecision, _event: WentHealthy) -> None:
    """Note that the operator can continue, after a reset."""
    decision.session = replace(decision.session, ill="")


def close(decision: OperatorDecision, event: Close) -> None:
    """Give everything back, then leave."""
    usual = decision.now + decision.config.settings.drain_timeout_ms
    given = event.deadline
    decision.session = replace(
        decision.session,
        is_closing=True,
        close_deadline=usual if given is None else given,
    )
    decision.stop(frozenset(decision.session.reading))


def pass_over(_decision: OperatorDecision, _event: object) -> None:
    """Do nothing."""


def rest(_decision: OperatorDecision, _event: object) -> None:
    """Do nothing."""


# ---------------------------------------------------------------------------- actions at any time


def is_out(decision: OperatorDecision, _event: object) -> bool:
    """Whether the log no longer has this incarnation."""
    return decision.session.folded is not None and decision.me is None


def has_left(decision: OperatorDecision, _event: object) -> bool:
    """Whether it wrote its `Left` record, and the log shows it."""
    return decision.session.has_left and is_out(decision, _event)


def finish_closing(decision: OperatorDecision, _event: object) -> None:
    """Stop cleanly; release a waiting listener."""
    decision.ends_revocation = decision.session.is_holding
    decision.session = replace(
        decision.session,
        state=OperatorState.CLOSED,
        reading=Map(),
        is_holding=False,
        deadline=None,
        close_deadline=None,
        merge_due=None,
    )
    decision.is_closed = True


def be_fenced(decision: OperatorDecision, _event: object) -> None:
    """Stop at once: no record of this incarnation counts any more."""
    name = decision.config.id.name
    newer = decision.folded.operators.get(name)
    named = None if newer is None else f"{newer.id} on {newer.host} has its name"
    why = named or _why_evicted(decision)
    finish_closing(decision, _event)
    decision.is_closed = False
    decision.session = replace(decision.session, state=OperatorState.FENCED)
    decision.failed = OperatorFencedError(f"operator {decision.config.id}: {why}")


def _why_evicted(decision: OperatorDecision) -> str:
    """Describe why the controller evicted the operator, and the remedy."""
    why = decision.evicted or "the log no longer says why"
    return (
        f"the controller evicted it: {why}. Records since {_last(decision)} are processed "
        "again. Restart it. If this happens again: if its process was stopped or too busy for "
        "heartbeats, give it a longer session_timeout_ms (in a KIP-848 group the broker has it: "
        "group.consumer.session.timeout.ms); if its function took too long, make it faster, or "
        "create the region with a longer reset_timeout_ms"
    )


def differs(decision: OperatorDecision, _event: object) -> bool:
    """Whether the region has other settings than this operator."""
    settings = decision.folded.settings
    return settings is not None and not settings.fits(decision.config.settings)


def refuse(decision: OperatorDecision, _event: object) -> None:
    """Stop with an error: the settings differ."""
    finish_closing(decision, _event)
    decision.is_closed = False
    decision.session = replace(decision.session, state=OperatorState.FAILED)
    settings = decision.folded.settings
    assert settings is not None
    differences = told_differences(asdict(decision.config.settings), settings)
    decision.failed = DifferentRegionError(f"operator {decision.config.id}: {differences}")


def is_attempt_new(decision: OperatorDecision, _event: object) -> bool:
    """Whether the region has begun an attempt that this operator has not joined."""
    return decision.folded.attempt > decision.session.attempt


def go_back(decision: OperatorDecision, _event: object) -> None:
    """Discard everything delivered since the last complete checkpoint."""
    attempt = decision.folded.attempt
    decision.session = replace(
        decision.session,
        state=OperatorState.CR_RESET_PENDING,
        attempt=attempt,
        reading=Map(),
        lost=NONE,
        cut=None,
        contribution=None,
        needs_reset="",
        merge_due=decision.now + decision.config.merge_timeout_ms,
    )
    decision.discard = attempt
    decision.stops = NONE
    decision.cut = None
    decision.reads.clear()


def is_time_over(decision: OperatorDecision, _event: object) -> bool:
    """Whether the listener's deadline has passed."""
    session = decision.session
    return session.is_holding and session.deadline is not None and decision.now >= session.deadline


def let_go(decision: OperatorDecision, _event: object) -> None:
    """Release the listener; deliveries not handed over are lost, and the region resets."""
    session = decision.session
    owned = decision.owned & session.revoking
    dirty = frozenset(
        each for each in owned if not decision.is_clean(each) or _is_running(session, each)
    )
    if dirty:
        decision.warn("revocation not handed over", _not_handed_over(decision, dirty))
    decision.session = replace(session, lost=session.lost | dirty)
    log.end_revocation(decision)
    if dirty:
        log.wait_for_reset(decision, decision.session.needs_reset)


def _not_handed_over(decision: OperatorDecision, partitions: Partitions) -> str:
    """Describe which partitions could not be handed over, and why."""
    folded, limit = decision.folded, decision.config.settings.drain_timeout_ms
    names = sorted(map(str, partitions))
    shown = ", ".join(names[:_NAMES_MAX]) + (", ..." if len(names) > _NAMES_MAX else "")
    since = _last(decision)
    return (
        f"{shown} could not be handed over with a checkpoint in time (drain_timeout_ms is {limit}; "
        f"the region: {what_it_waits_for(folded)}). Records processed since {since} are in no "
        "checkpoint, and the next owner processes them again"
    )


def _last(decision: OperatorDecision) -> str:
    """Name the last complete checkpoint."""
    completed = decision.folded.completed
    return f"checkpoint {completed}" if completed else "the beginning"


def _is_running(session: OperatorSession, each: object) -> bool:
    reading = session.reading.get(each)  # type: ignore[call-overload]  # any key may be asked for
    return reading is not None and not reading.is_stopped


def must_leave_now(decision: OperatorDecision, _event: object) -> bool:
    """Whether its deadline to leave cleanly has passed."""
    due = decision.session.close_deadline
    return due is not None and decision.now >= due


def leave_now(decision: OperatorDecision, _event: object) -> None:
    """Leave without a last checkpoint, with a record in the log if possible."""
    kept = decision.owned | frozenset(decision.session.reading)
    if kept:
        decision.warn("no last checkpoint", _not_handed_over(decision, kept))
    if decision.is_free and decision.me is not None:
        log.leave(decision, _event)
    finish_closing(decision, _event)


def is_merge_late(decision: OperatorDecision, _event: object) -> bool:
    """Whether it has waited in a reset for too long."""
    due = decision.session.merge_due
    return due is not None and decision.now >= due


def tell_of_merge(decision: OperatorDecision, _event: object) -> None:
    """Report what it waits for, once per reset."""
    limit = decision.config.merge_timeout_ms
    text = (
        f"{decision.config.id} has not gone back to {_last(decision)} within {limit} ms, the "
        "time-out of the merge (the least of half of reset_timeout_ms, half of "
        f"max_poll_interval_ms, and {MERGE_MAX_MS} ms): {_why_not_back(decision)}. The function "
        "gets no records until then"
    )
    decision.warn("merge timed out", text)
    decision.session = replace(decision.session, merge_due=None)


def _why_not_back(decision: OperatorDecision) -> str:
    session, folded = decision.session, decision.folded
    if session.ill:
        return f"it cannot continue: {session.ill}"
    if folded.must_reset or folded.exhausted:
        return f"no controller has begun the reset; the region: {what_it_waits_for(folded)}"
    if session.lost or session.needs_reset:
        return "the control topic does not show the reset that it asked for"
    return "the function or the sink is still busy with work from before the reset"


def is_stopped_by_region(decision: OperatorDecision, _event: object) -> bool:
    """Whether the whole region was asked to stop."""
    return decision.folded.stopping and not decision.session.is_closing


def close_with_region(decision: OperatorDecision, _event: object) -> None:
    """Give everything back with the last checkpoint, and leave."""
    close(decision, Close())
