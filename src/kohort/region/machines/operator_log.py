"""How an operator reacts to the log, once the log shows the results of all its records.

Each pair here is a guard and its action; their order is in the table in `operator`.
"""

from __future__ import annotations

from immutables import Map

from kohort.region.machines.events import MakeCut, Read
from kohort.region.machines.operator_session import (
    CHECKPOINT,
    NONE,
    OperatorDecision,
    OperatorState,
    Reading,
)
from kohort.region.machines.operator_session import RESET as BY_RESET
from kohort.region.machines.records import (
    RESET,
    Ask,
    Claim,
    Healthy,
    Leaving,
    Left,
    Lost,
    Partitions,
    RegionRecord,
    RegionSettled,
    Registered,
    ResetDone,
    Start,
    Unclaim,
    Unhealthy,
)
from kohort.values import replace

_NO_COUNTS: Map[str, int] = Map()

# ------------------------------------------------------------------------------------ registration


def is_closing(decision: OperatorDecision, _event: object) -> bool:
    """Whether it is closed before it was registered."""
    return decision.session.is_closing and decision.me is None


def is_unknown(decision: OperatorDecision, _event: object) -> bool:
    """Whether it is not registered yet."""
    return decision.me is None


def register(decision: OperatorDecision, _event: object) -> None:
    """Register; the first operator also writes the region's settings."""
    config, folded = decision.config, decision.folded
    records: list[RegionRecord] = []
    if folded.settings is None or (config.settings.sink and not folded.settings.sink):
        records.append(RegionSettled(str(config.id), config.settings))
    records.append(
        Registered(config.id, folded.offset, config.host, config.process, config.client_id)
    )
    decision.says(*records)


def begin(decision: OperatorDecision, _event: object) -> None:
    """Join the region, in the attempt in which it was registered."""
    me = decision.me
    assert me is not None
    state = OperatorState.SUBSCRIBED
    decision.session = replace(decision.session, state=state, attempt=me.attempt, seq=me.seq)


def is_doubtful(decision: OperatorDecision, _event: object) -> bool:
    """Whether one of its records is missing in the log, and might still arrive."""
    me = decision.me
    return me is not None and me.seq < decision.session.seq


def say_nothing(decision: OperatorDecision, _event: object) -> None:
    """Write a record with a later number, after which a late one has no effect."""
    decision.says(Unclaim(decision.config.id, decision.number(), NONE))


# ------------------------------------------------------------------------------------------ reading


def has_released(decision: OperatorDecision, _event: object) -> bool:
    """Whether it still tracks partitions that it no longer owns."""
    me = decision.me
    return me is not None and not frozenset(decision.session.reading) <= me.owned


def forget_released(decision: OperatorDecision, _event: object) -> None:
    """Stop tracking them; to get one again requires a claim."""
    me, reading = decision.me, decision.session.reading
    assert me is not None
    for each in [each for each in reading if each not in me.owned]:
        reading = reading.delete(each)
    decision.session = replace(decision.session, reading=reading)


def _unwanted(decision: OperatorDecision) -> Partitions:
    session = decision.session
    return frozenset(
        each
        for each in session.reading
        if not session.reading[each].is_stopping and each not in session.wanted
    )


def reads_unwanted(decision: OperatorDecision, _event: object) -> bool:
    """Whether it reads partitions that it should not own."""
    return bool(_unwanted(decision))


def stop_unwanted(decision: OperatorDecision, _event: object) -> None:
    """Stop reading them."""
    decision.stop(_unwanted(decision))


def _startless(decision: OperatorDecision) -> Partitions:
    session = decision.session
    return frozenset(
        each
        for each in session.wanted & decision.owned
        if decision.folded.partition(each).base is None
        and each not in session.finding
        and each not in session.found
    )


def has_no_start(decision: OperatorDecision, _event: object) -> bool:
    """Whether it owns a partition without a known start."""
    return bool(_startless(decision))


def find_starts(decision: OperatorDecision, _event: object) -> None:
    """Look up the starts."""
    startless = _startless(decision)
    decision.find_starts |= startless
    decision.find_beginnings |= {each for each in startless if decision.folded.is_added(each)}
    finding = decision.session.finding | startless
    decision.session = replace(decision.session, finding=finding)


def has_start(decision: OperatorDecision, _event: object) -> bool:
    """Whether it has found a start that is not in the log."""
    found, folded = decision.session.found, decision.folded
    return any(folded.partition(each).base is None for each in found)


def say_start(decision: OperatorDecision, _event: object) -> None:
    """Write the start; the first one in the log counts."""
    found, folded = decision.session.found, decision.folded
    who = decision.config.id
    starts = [
        Start(who, decision.number(), each, found[each])
        for each in sorted(found)
        if folded.partition(each).base is None
    ]
    decision.says(*starts)


def _readable(decision: OperatorDecision) -> Partitions:
    session = decision.session
    if decision.folded.must_reset or session.ill:
        return NONE
    return frozenset(
        each
        for each in session.wanted & decision.owned
        if each not in session.reading and decision.folded.partition(each).base is not None
    )


def may_read(decision: OperatorDecision, _event: object) -> bool:
    """Whether it owns a partition that it does not read yet."""
    return bool(_readable(decision))


def read(decision: OperatorDecision, _event: object) -> None:
    """Read the partition from the last complete checkpoint, or else from its start."""
    session = decision.session
    reading, number = session.reading, session.reads
    for each in sorted(_readable(decision)):
        known = decision.folded.partition(each)
        assert known.base is not None
        number += 1
        reading = reading.set(each, Reading(number, known.base))
        decision.reads.append(Read(each, known.base, known.state, number))
    decision.session = replace(session, reading=reading, reads=number)


# -------------------------------------------------------------------------------------- checkpoints


def is_cut_due(decision: OperatorDecision, _event: object) -> bool:
    """Whether a checkpoint waits for it, and no partition is still stopping."""
    session, folded = decision.session, decision.folded
    drain, who = folded.drain, decision.config.id
    if drain is None or who not in drain.participants or who in drain.contributions:
        return False
    if folded.must_reset or session.cut is not None or session.contribution is not None:
        return False
    return all(each.is_stopped or not each.is_stopping for each in session.reading.values())


def make_cut(decision: OperatorDecision, _event: object) -> None:
    """Ask the shell for a cut, which releases the stopped partitions."""
    folded, reading = decision.folded, decision.session.reading
    assert folded.drain is not None
    releases = frozenset(each for each in reading if reading[each].is_stopped)
    decision.cut = MakeCut(folded.drain.checkpoint, folded.attempt)
    decision.session = replace(decision.session, cut=decision.cut, releases=releases)


def _is_open(decision: OperatorDecision) -> bool:
    """Whether the checkpoint still waits for the contribution."""
    drain, given = decision.folded.drain, decision.session.contribution
    if drain is None or given is None or drain.checkpoint != given.checkpoint:
        return False
    return decision.config.id not in drain.contributions


def is_contributed(decision: OperatorDecision, _event: object) -> bool:
    """Whether the log has its contribution, or the checkpoint is over."""
    return decision.session.contribution is not None and not _is_open(decision)


def forget_contribution(decision: OperatorDecision, _event: object) -> None:
    """Discard the contribution, which is in the log."""
    decision.session = replace(decision.session, contribution=None)


def has_contribution(decision: OperatorDecision, _event: object) -> bool:
    """Whether the checkpoint waits for its contribution, which is not in the log yet."""
    given, me = decision.session.contribution, decision.me
    if given is None or me is None or not _is_open(decision):
        return False
    return given.seq == 0 or given.seq > me.seq


def contribute(decision: OperatorDecision, _event: object) -> None:
    """Write the contribution, with a new number each time."""
    given = decision.session.contribution
    assert given is not None
    given = replace(given, seq=decision.number())
    decision.session = replace(decision.session, contribution=given)
    decision.says(given)


def is_refused(decision: OperatorDecision, _event: object) -> bool:
    """Whether the log contains its contribution, but the fold ignored it."""
    return _is_open(decision)


def doubt_contribution(decision: OperatorDecision, _event: object) -> None:
    """Ask for a reset: the contribution is in no checkpoint, so its content would be missing."""
    given = decision.session.contribution
    assert given is not None
    why = f"the contribution of {decision.config.id} to {given.checkpoint} was refused"
    decision.note("contribution refused", why)
    wait_for_reset(decision, why)


def wait_for_reset(decision: OperatorDecision, why: str) -> None:
    """Deliver nothing until the region has reset."""
    decision.stop(frozenset(decision.session.reading))
    session = decision.session
    is_new = session.state is not OperatorState.CR_RESET_PENDING
    decision.session = replace(
        session,
        state=OperatorState.CR_RESET_PENDING,
        cut=None,
        contribution=None,
        needs_reset=why,
        merge_due=decision.now + decision.config.merge_timeout_ms if is_new else session.merge_due,
    )


# ------------------------------------------------------------------------------------------- resets


def has_reason(decision: OperatorDecision, _event: object) -> bool:
    """Whether it needs a reset that the log does not show."""
    folded = decision.folded
    return bool(decision.session.needs_reset) and not (folded.must_reset or folded.exhausted)


def ask_reset(decision: OperatorDecision, _event: object) -> None:
    """Ask for the reset."""
    why, attempt = decision.session.needs_reset, decision.session.attempt
    checkpoint = decision.folded.checkpoint + 1
    decision.says(Ask(str(decision.config.id), RESET, checkpoint, attempt, why=why))


def is_awaited(decision: OperatorDecision, _event: object) -> bool:
    """Whether it is at the positions of the attempt, and the log does not show it."""
    me = decision.me
    return me is not None and me.attempt < decision.session.attempt


def finish_reset(decision: OperatorDecision, _event: object) -> None:
    """Write that the reset is done."""
    attempt = decision.session.attempt
    decision.says(ResetDone(decision.config.id, decision.number(), attempt))


def is_newly_ill(decision: OperatorDecision, _event: object) -> bool:
    """Whether it cannot continue, and the log does not show it."""
    me = decision.me
    return me is not None and bool(decision.session.ill) and not me.unhealthy


def say_ill(decision: OperatorDecision, _event: object) -> None:
    """Write that it is unhealthy, and why."""
    decision.says(Unhealthy(decision.config.id, decision.number(), decision.session.ill))


def is_newly_healthy(decision: OperatorDecision, _event: object) -> bool:
    """Whether it can continue again, and the log does not show it."""
    me = decision.me
    return me is not None and bool(me.unhealthy) and not decision.session.ill


def say_healthy(decision: OperatorDecision, _event: object) -> None:
    """Write that it is healthy."""
    decision.says(Healthy(decision.config.id, decision.number()))


# --------------------------------------------------------------------------------- partitions move


def _giving(decision: OperatorDecision) -> Partitions:
    """Return the partitions that it owns and gives back, and whose delivery has stopped.

    A stopped partition is given back even if the group assigns it again; it is then claimed again.
    Only in a reset, when everything stops, does the operator keep its assigned partitions.
    """
    session = decision.session
    going = decision.owned - session.wanted
    if session.state is not OperatorState.CR_RESET_PENDING:
        stopped = {each for each in session.reading if session.reading[each].is_stopping}
        going |= decision.owned & stopped
    reading = session.reading
    return frozenset(each for each in going if each not in reading or reading[each].is_stopped)


def _clean(decision: OperatorDecision) -> Partitions:
    session = decision.session
    if session.cut is not None or session.contribution is not None:
        return NONE  # they may be in the cut, and a contribution covers only owned partitions
    clean = {each for each in _giving(decision) if decision.is_clean(each)}
    return frozenset(clean | (decision.awaited - session.wanted))


def has_clean(decision: OperatorDecision, _event: object) -> bool:
    """Whether it gives back partitions with no deliveries."""
    return bool(_clean(decision))


def unclaim(decision: OperatorDecision, _event: object) -> None:
    """Give them back."""
    decision.says(Unclaim(decision.config.id, decision.number(), _clean(decision)))


def _dirty(decision: OperatorDecision) -> Partitions:
    giving = _giving(decision) - decision.session.lost
    return frozenset(each for each in giving if not decision.is_clean(each))


def is_hopeless(decision: OperatorDecision, _event: object) -> bool:
    """Whether it gives back partitions that no checkpoint will contain before a reset."""
    is_pending = decision.session.state is OperatorState.CR_RESET_PENDING
    by_reset = decision.config.rebalance == BY_RESET
    doomed = is_pending or by_reset or bool(decision.folded.must_reset)
    return doomed and bool(_dirty(decision))


def give_up(decision: OperatorDecision, _event: object) -> None:
    """Mark them as lost: their deliveries do not count."""
    lost = decision.session.lost | _dirty(decision)
    decision.session = replace(decision.session, lost=lost)
    wait_for_reset(decision, decision.session.needs_reset)


def _unannounced(decision: OperatorDecision) -> Partitions:
    if decision.config.rebalance != CHECKPOINT:
        return NONE
    known = decision.folded.partitions
    return frozenset(each for each in _dirty(decision) if not known[each].leaving)


def has_dirty(decision: OperatorDecision, _event: object) -> bool:
    """Whether a partition needs a checkpoint to be handed over, and the log does not show it."""
    return bool(_unannounced(decision))


def announce(decision: OperatorDecision, _event: object) -> None:
    """Write it to the log: the region then makes a checkpoint at once."""
    decision.says(Leaving(decision.config.id, decision.number(), _unannounced(decision)))


def _to_tell(decision: OperatorDecision) -> Partitions:
    """Return the lost partitions that the log does not show as lost."""
    mine, partitions = decision.config.id, decision.folded.partitions
    shown = {p for p in decision.awaited if partitions[p].owner == mine and partitions[p].lost}
    return decision.session.lost & (decision.owned | (decision.awaited - shown))


def has_lost(decision: OperatorDecision, _event: object) -> bool:
    """Whether partitions are lost, and the log does not show it."""
    return bool(_to_tell(decision))


def say_lost(decision: OperatorDecision, _event: object) -> None:
    """Write the lost partitions to the log."""
    decision.says(Lost(decision.config.id, decision.number(), _to_tell(decision)))


def is_handed_over(decision: OperatorDecision, _event: object) -> bool:
    """Whether it no longer owns any partition that the listener waits for."""
    session = decision.session
    return session.is_holding and not session.revoking & (decision.owned | decision.awaited)


def end_revocation(decision: OperatorDecision, _event: object = None) -> None:
    """Release the listener."""
    session = decision.session
    decision.ends_revocation = True
    decision.session = replace(
        session,
        assigned=session.assigned - session.revoking,
        finding=session.finding - session.revoking,
        revoking=NONE,
        is_holding=False,
        deadline=None,
    )


def _unclaimed(decision: OperatorDecision) -> Partitions:
    session = decision.session
    unclaimed = session.wanted - decision.owned - decision.awaited
    if unclaimed <= session.claimed and decision.now < session.claim_again:
        return NONE
    return unclaimed


def has_unclaimed(decision: OperatorDecision, _event: object) -> bool:
    """Whether the group assigned it partitions that it does not own in the log."""
    return bool(_unclaimed(decision))


def claim(decision: OperatorDecision, _event: object) -> None:
    """Claim them; repeat the claim after a pause, in case another operator also claims them."""
    unclaimed = _unclaimed(decision)
    decision.claims(unclaimed)
    # Ownership, and the search for starts, begin once the log has the counts of some operator.
    counts = _NO_COUNTS if decision.folded.began else decision.session.counts
    decision.says(Claim(decision.config.id, decision.number(), unclaimed, counts))


def may_leave(decision: OperatorDecision, _event: object) -> bool:
    """Whether it owns nothing any more, and no checkpoint waits for it."""
    session, drain = decision.session, decision.folded.drain
    if not session.is_closing or decision.owned or decision.awaited:
        return False
    if session.cut is not None or session.contribution is not None:
        return False
    return drain is None or decision.config.id not in drain.participants


def leave(decision: OperatorDecision, _event: object) -> None:
    """Write that it has left for good."""
    decision.session = replace(decision.session, has_left=True)
    decision.says(Left(decision.config.id, decision.number()))
