"""When the fold ignores a record. Each condition returns the problem, or an empty text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from kohort.region.machines.records import (
    DRAIN,
    NAMES,
    RESET,
    Ask,
    Complete,
    Contribution,
    Controller,
    Drain,
    Evict,
    Exhausted,
    OperatorId,
    OperatorRecord,
    Published,
    RegionRecord,
    RegionSettled,
    Registered,
    Reset,
    ResetDone,
    Snapshot,
    Start,
    Unclaim,
)
from kohort.region.machines.state import Phase, RegionState

Condition: TypeAlias = Callable[[RegionState, Any], str]


def told(record: RegionRecord) -> str:
    """Return a short description of a record."""
    match record:
        case Contribution():
            return (
                f"contribution of attempt {record.attempt} for checkpoint {record.checkpoint}"
                f" from operator {record.operator}"
            )
        case Drain() | Complete() | Published():
            return f"{NAMES[type(record)]} of checkpoint {record.checkpoint}"
        case Reset():
            return f"reset to attempt {record.attempt}: {record.why}"
        case Evict():
            return f"eviction of operator {record.operator}: {record.why}"
        case Ask():
            return f"ask for a {record.what} by {record.writer}"
    who = getattr(record, "operator", None)
    name = NAMES[type(record)]
    return f"{name} of operator {who}" if isinstance(who, OperatorId) else name


# --------------------------------------------------------------------------------------- the region


def is_first_or_equal(state: RegionState, record: RegionSettled) -> str:
    """The settings equal the region's, or are the first ones."""
    if state.settings is None or state.settings.fits(record.settings):
        return ""
    return (
        f"{record.writer} is of a region with other settings: {record.settings},"
        f" this one has {state.settings}"
    )


# ---------------------------------------------------------------------------------------- operators


def is_no_copy(state: RegionState, record: Registered) -> str:
    """The incarnation is not registered yet."""
    if state.active(record.operator) is None:
        return ""
    return f"{told(record)}: it is registered already"


def knows_its_predecessor(state: RegionState, record: Registered) -> str:
    """The writer had read the last change of its name, so this is not a late copy."""
    older = state.operators.get(record.operator.name)
    changed = state.buried_at if older is None else older.registered_at
    if record.after > changed:
        return ""
    return f"{told(record)}: written when {record.after} was the end, changed at {changed}"


def is_active(state: RegionState, record: OperatorRecord) -> str:
    """The incarnation is active: it was neither fenced nor evicted, and has not left."""
    if state.active(record.operator) is not None:
        return ""
    return f"{told(record)}: this incarnation is not active"


def is_new(state: RegionState, record: OperatorRecord) -> str:
    """The operator has not written this number or a later one before."""
    seq = state.operators[record.operator.name].seq
    return "" if record.seq > seq else f"{told(record)}: number {record.seq} comes after {seq}"


def is_first_start(state: RegionState, record: Start) -> str:
    """The start of the partition is not known yet."""
    known = state.partition(record.partition).start
    return "" if known is None else f"{told(record)}: {record.partition} starts at {known} already"


def gives_back_nothing_contributed(state: RegionState, record: Unclaim) -> str:
    """The operator's open contribution contains none of the partitions that it gives back."""
    drain = state.drain
    given = None if drain is None else drain.contributions.get(record.operator)
    for each in () if given is None else sorted(record.partitions):
        at = given.offsets.get(each) if given is not None else None
        if at is not None and at != state.partition(each).base:
            return f"{told(record)}: {each} is contributed up to {at}"
    return ""


# -------------------------------------------------------------------------------------- checkpoints

OfAttempt: TypeAlias = Contribution | ResetDone | Drain | Complete | Exhausted


def is_of_present_attempt(state: RegionState, record: OfAttempt) -> str:
    """It belongs to the current attempt."""
    if record.attempt == state.attempt:
        return ""
    age = "stale" if record.attempt < state.attempt else "unheard of"
    said = told(record) if isinstance(record, Contribution) else _of_attempt(record)
    return f"{said} is {age}: the region is at attempt {state.attempt}"


def _of_attempt(record: OfAttempt) -> str:
    return f"{told(record)} in attempt {record.attempt}"


def is_of_open_drain(state: RegionState, record: Contribution | Complete) -> str:
    """It belongs to the checkpoint that waits for contributions."""
    if state.drain is not None and state.drain.checkpoint == record.checkpoint:
        return ""
    open_one = "none" if state.drain is None else str(state.drain.checkpoint)
    return f"{told(record)}: the open checkpoint is {open_one}"


def is_of_participant(state: RegionState, record: Contribution) -> str:
    """The operator takes part in the open checkpoint."""
    assert state.drain is not None
    if record.operator in state.drain.participants:
        return ""
    return f"{told(record)}: it owned nothing when the checkpoint began"


def is_first_contribution(state: RegionState, record: Contribution) -> str:
    """The operator has not contributed to this checkpoint yet."""
    assert state.drain is not None
    if record.operator not in state.drain.contributions:
        return ""
    return f"{told(record)}: it has contributed already"


def covers_what_it_owns(state: RegionState, record: Contribution) -> str:
    """It covers every partition that the operator owned at the drain and still owns."""
    assert state.drain is not None
    missing = state.drain.participants[record.operator] - frozenset(record.offsets)
    if not missing:
        return ""
    return f"{told(record)} does not cover {', '.join(map(str, sorted(missing)))}"


def owns_what_it_covers(state: RegionState, record: Contribution) -> str:
    """The operator owns every partition in the contribution."""
    for each in sorted(record.offsets):
        owner = state.partition(each).owner
        if owner != record.operator:
            return f"{told(record)} covers {each}, whose owner is {owner or 'none'}"
    return ""


def goes_forward(state: RegionState, record: Contribution) -> str:
    """No partition moves back to before the last checkpoint or its start."""
    for each, offset in sorted(record.offsets.items()):
        base = state.partition(each).base
        if base is None:
            return f"{told(record)} covers {each}, which has no start position"
        if offset < base:
            return f"{told(record)} takes {each} back from {base} to {offset}"
    return ""


def mentions_only_what_it_covers(_state: RegionState, record: Contribution) -> str:
    """Partitions with a state and released partitions have an offset in it."""
    odd = (record.released | frozenset(record.states)) - frozenset(record.offsets)
    return f"{told(record)} has no offset of {min(odd)}" if odd else ""


# --------------------------------------------------------------------------------------- decisions


def is_still_wanted(state: RegionState, record: Ask) -> str:
    """The request has not been fulfilled meanwhile."""
    if record.what == DRAIN and record.checkpoint != state.checkpoint + 1:
        return f"{told(record)}: checkpoint {record.checkpoint} has begun already"
    if record.what == RESET and record.attempt != state.attempt:
        return f"{told(record)}: attempt {record.attempt} has ended already"
    if record.what == RESET and state.exhausted and not record.force:
        return f"{told(record)}: {state.exhausted}; only a forced reset is allowed"
    if record.what not in (DRAIN, RESET) and not state.operators:
        return f"{told(record)}: there is no operator"
    return ""


def is_next_epoch(state: RegionState, record: Controller) -> str:
    """The epoch is the current one + 1."""
    if record.epoch == state.epoch + 1:
        return ""
    return f"controller {record.incarnation} wants epoch {record.epoch}, the last is {state.epoch}"


def is_decided_by_the_controller(state: RegionState, record: Complete) -> str:
    """The controller of the current epoch decided it."""
    if (record.epoch, record.incarnation) == (state.epoch, state.controller):
        return ""
    return (
        f"{told(record)}: decided by {record.incarnation} of epoch {record.epoch},"
        f" the controller is {state.controller or 'none'} of epoch {state.epoch}"
    )


def is_next_checkpoint(state: RegionState, record: Drain) -> str:
    """Its number follows the last checkpoint's, complete or burnt."""
    if record.checkpoint == state.checkpoint + 1:
        return ""
    return f"{told(record)}: the last one is {state.checkpoint}"


def may_drain(state: RegionState, record: Drain) -> str:
    """The region is processing, and needs no reset."""
    if state.must_reset:
        return f"{told(record)}: the region must reset: {state.must_reset}"
    if state.phase in (Phase.PROCESSING, Phase.CHECKPOINT_PENDING):
        return ""
    return f"{told(record)}: the region is {state.phase.name}"


def needs_no_reset(state: RegionState, record: Complete) -> str:
    """The region need not reset."""
    if not state.must_reset:
        return ""
    return f"{told(record)}: the region must reset: {state.must_reset}"


def has_active_participants(state: RegionState, record: Complete) -> str:
    """All participants are active."""
    assert state.drain is not None
    gone = sorted(each for each in state.drain.participants if state.active(each) is None)
    return f"{told(record)}: {gone[0]} is gone" if gone else ""


def has_all_contributions(state: RegionState, record: Complete) -> str:
    """All participants have contributed."""
    assert state.drain is not None
    missing = state.drain.missing
    return f"{told(record)}: {missing[0]} has not contributed" if missing else ""


def is_oldest_unpublished(state: RegionState, record: Published) -> str:
    """It is the oldest unpublished checkpoint: checkpoints become visible in order."""
    oldest = state.unpublished[0].checkpoint if state.unpublished else None
    if record.checkpoint == oldest:
        return ""
    return f"{told(record)}: the oldest one that is not is {oldest or 'none'}"


def is_next_attempt(state: RegionState, record: Reset) -> str:
    """Its attempt is the current one + 1."""
    if record.attempt == state.attempt + 1:
        return ""
    return f"{told(record)}: the present attempt is {state.attempt}"


def is_healthy(state: RegionState, record: Reset) -> str:
    """No operator is unhealthy."""
    ill = [str(each.id) for each in state.operators.values() if each.unhealthy]
    return f"{told(record)}: {min(ill)} is unhealthy" if ill else ""


def is_forced_with_reason(state: RegionState, record: Reset) -> str:
    """If it is forced, a forced reset was asked for."""
    if state.forced or not record.forced:
        return ""
    return f"{told(record)}: no forced one was asked for"


def is_within_budget(state: RegionState, record: Reset) -> str:
    """It is forced, or there were not too many consecutive resets."""
    if record.forced or (not state.exhausted and state.resets < state.max_resets):
        return ""
    return f"{told(record)}: there were {state.resets} in a row, only a forced one is allowed"


def is_still_active(state: RegionState, record: Evict) -> str:
    """The operator is active; only active operators can be evicted."""
    if state.active(record.operator) is not None:
        return ""
    return f"{told(record)}: it is not active"


def is_exhausted(state: RegionState, record: Exhausted) -> str:
    """The budget is spent, and no forced reset was asked for."""
    if not state.forced and not state.exhausted and state.resets >= state.max_resets:
        return ""
    return f"{told(record)}: another reset is possible"


def is_newer_snapshot(state: RegionState, record: Snapshot) -> str:
    """It covers more of the log than the newest snapshot."""
    if state.snapshot_before < record.before <= state.offset:
        return ""
    return f"snapshot before {record.before}: the newest is before {state.snapshot_before}"
