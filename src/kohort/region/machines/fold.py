"""The fold: how each record changes the state, and when it is ignored.

Each kind of record has conditions and an action. The first condition that fails names the rule and
the problem; the record then changes nothing. The simulator leaves out conditions one by one to show
that each of them is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from immutables import Map
from msgspec import Struct

from kohort.region.machines import conditions as when
from kohort.region.machines.conditions import Condition
from kohort.region.machines.records import (
    DRAIN,
    NAMES,
    RESET,
    Ask,
    Claim,
    Complete,
    Contribution,
    Controller,
    Drain,
    Evict,
    Exhausted,
    Healthy,
    Leaving,
    Left,
    Lost,
    OperatorId,
    Published,
    RegionPartition,
    RegionRecord,
    RegionSettled,
    Registered,
    Reset,
    ResetDone,
    Snapshot,
    Start,
    Trimmed,
    Unclaim,
    Unhealthy,
)
from kohort.region.machines.state import (
    Checkpoint,
    Fact,
    OpenDrain,
    Operator,
    Partition,
    RegionState,
)
from kohort.values import replace


class _Folding:
    """The fold of one record."""

    def __init__(self, state: RegionState, offset: int) -> None:
        self.state = state
        self.offset = offset
        self.facts: list[Fact] = []

    def set(self, **changes: Any) -> None:  # noqa: ANN401  # the fields of a state
        """Change fields of the state."""
        self.state = replace(self.state, **changes)

    def note(self, rule: str, text: str) -> None:
        """Add a fact to what was observed."""
        self.facts.append(Fact(self.offset, rule, text))

    def change(self, partition: RegionPartition, **changes: Any) -> None:  # noqa: ANN401  # its fields
        """Change fields of a partition; an operator's `owned` follows its owner."""
        before = self.state.partition(partition)
        after = replace(before, **changes)
        self.set(partitions=self.state.partitions.set(partition, after))
        if after.owner != before.owner:
            self._own(before.owner, partition, owns=False)
            self._own(after.owner, partition, owns=True)

    def _own(self, who: OperatorId | None, partition: RegionPartition, *, owns: bool) -> None:
        operator = self.state.active(who)
        if operator is not None:
            owned = operator.owned | {partition} if owns else operator.owned - {partition}
            self.change_operator(operator, owned=owned)

    def change_operator(self, operator: Operator, **changes: Any) -> None:  # noqa: ANN401  # its fields
        """Change fields of an operator."""
        after = replace(operator, **changes)
        self.set(operators=self.state.operators.set(operator.id.name, after))

    def grant(self, partition: RegionPartition, who: OperatorId | None) -> None:
        """Give a partition to an operator; None: it has no owner."""
        self.change(partition, owner=who, waiting=None, lost=False, leaving=False)

    def free(self, partition: RegionPartition) -> None:
        """Take a partition from its owner, and give it to an operator that waits for it."""
        waiting = self.state.partition(partition).waiting
        self.grant(partition, waiting if self.state.active(waiting) else None)

    def need_reset(self, why: str, *, forced: bool = False) -> None:
        """Request a reset; the first reason is kept, and a forced reset stays forced."""
        state = self.state
        self.set(must_reset=state.must_reset or why, forced=state.forced or forced)

    def bury(self, operator: Operator, why: str) -> None:
        """End an incarnation."""
        state = self.state
        self.set(operators=state.operators.delete(operator.id.name), buried_at=self.offset)
        if operator.owned or (state.drain is not None and operator.id in state.drain.participants):
            self.need_reset(why)
        if not self.state.operators:
            self.set(stopping=False)


Action: TypeAlias = Callable[[_Folding, Any], None]


class Rule(Struct, frozen=True):
    """The conditions and the action of a kind of record.

    Attributes:
        conditions: Conditions that must hold, in the order of checking.
        action: The change to the state.
        usual: Conditions that sometimes fail in a healthy region.
    """

    conditions: tuple[Condition, ...]
    action: Action
    usual: tuple[Condition, ...] = ()


# ------------------------------------------------------------------------------------- operators


def settle(folding: _Folding, record: RegionSettled) -> None:
    """The region gets its settings; the output's location may become known later."""
    known = folding.state.settings or record.settings
    folding.set(settings=replace(known, sink=known.sink or record.settings.sink))


def register(folding: _Folding, record: Registered) -> None:
    """The incarnation becomes active, and an earlier one with its name ends."""
    older = folding.state.operators.get(record.operator.name)
    if older is not None:
        folding.bury(older, f"{record.operator} took the place of {older.id}")
        folding.note("fenced", f"{older.id} is fenced by {record.operator} on {record.host}")
    operator = Operator(
        id=record.operator,
        host=record.host,
        process=record.process,
        client_id=record.client_id,
        registered_at=folding.offset,
        attempt=folding.state.attempt,
    )
    operators = folding.state.operators.set(record.operator.name, operator)
    folding.set(operators=operators)


def leave(folding: _Folding, record: Left) -> None:
    """The incarnation has left."""
    operator = folding.state.operators[record.operator.name]
    folding.bury(operator, f"{operator.id} left without handing over")


def claim(folding: _Folding, record: Claim) -> None:
    """Partitions without an owner are granted; those with another owner wait for a reset."""
    if not folding.state.began:
        folding.set(began=Map(record.counts))
    for each in sorted(record.partitions):
        known = folding.state.partition(each)
        if known.owner is None:
            folding.grant(each, record.operator)
        elif known.owner != record.operator or known.lost:
            folding.change(each, waiting=record.operator)
            why = f"{record.operator} claims {each}, which {known.owner} has not released"
            folding.need_reset(why, forced=True)


def unclaim(folding: _Folding, record: Unclaim) -> None:
    """Partitions of the operator become free, and it no longer waits for others."""
    for each in sorted(record.partitions):
        known = folding.state.partition(each)
        if known.owner == record.operator:
            _forget_contributed(folding, record.operator, each)
            folding.free(each)
        elif known.waiting == record.operator:
            folding.change(each, waiting=None)


def _forget_contributed(
    folding: _Folding, operator: OperatorId, partition: RegionPartition
) -> None:
    """Remove a partition from this operator's part of the open drain."""
    drain = folding.state.drain
    if drain is None or operator not in drain.participants:
        return
    covers = drain.participants[operator] - {partition}
    contributions = drain.contributions
    given = contributions.get(operator)
    if given is not None and partition in given.offsets:
        offsets = Map({each: at for each, at in given.offsets.items() if each != partition})
        kept = replace(given, offsets=offsets, released=given.released - {partition})
        contributions = contributions.set(operator, kept)
    participants = drain.participants.set(operator, covers)
    folding.set(drain=replace(drain, participants=participants, contributions=contributions))


def lose(folding: _Folding, record: Lost) -> None:
    """A reset is now required, after which the owner no longer has the partition."""
    for each in sorted(record.partitions):
        known = folding.state.partition(each)
        if known.owner == record.operator:
            folding.change(each, lost=True)
            why = f"{record.operator} lost {each} after it had delivered from it"
            folding.need_reset(why, forced=True)
        elif known.waiting == record.operator:
            folding.change(each, waiting=None)


def note_leaving(folding: _Folding, record: Leaving) -> None:
    """The owner releases the partition with its next contribution."""
    for each in record.partitions:
        if folding.state.partition(each).owner == record.operator:
            folding.change(each, leaving=True)


def start(folding: _Folding, record: Start) -> None:
    """The partition gets its start offset, which never changes."""
    folding.change(record.partition, start=record.offset)


def contribute(folding: _Folding, record: Contribution) -> None:
    """The contribution is kept until all others arrive."""
    drain = folding.state.drain
    assert drain is not None
    contributions = drain.contributions.set(record.operator, record)
    folding.set(drain=replace(drain, contributions=contributions))


def finish_reset(folding: _Folding, record: ResetDone) -> None:
    """The operator is at the positions of the attempt."""
    operator = folding.state.operators[record.operator.name]
    folding.change_operator(operator, attempt=record.attempt)


def fall_ill(folding: _Folding, record: Unhealthy) -> None:
    """The region waits until the operator is healthy."""
    operator = folding.state.operators[record.operator.name]
    folding.change_operator(operator, unhealthy=record.why or "for no reason given")
    folding.need_reset(f"{operator.id} is unhealthy: {record.why}")


def recover(folding: _Folding, record: Healthy) -> None:
    """The operator can continue, after a reset."""
    operator = folding.state.operators[record.operator.name]
    if operator.unhealthy:
        folding.change_operator(operator, unhealthy="")
        folding.need_reset(f"{operator.id} is healthy again")


def ask(folding: _Folding, record: Ask) -> None:
    """A checkpoint, a reset or a stop was requested."""
    why = f"{record.writer} asked for it" + (f": {record.why}" if record.why else "")
    if record.what == DRAIN:
        folding.set(asked_drain=why)
    elif record.what == RESET:
        folding.need_reset(why, forced=record.force)
    else:
        folding.set(stopping=True)


# ------------------------------------------------------------------------------------- controller


def take_over(folding: _Folding, record: Controller) -> None:
    """The candidate becomes the controller."""
    folding.set(epoch=record.epoch, controller=record.incarnation)


def drain(folding: _Folding, record: Drain) -> None:
    """All active owners take part in the checkpoint."""
    state = folding.state
    participants = {
        each.id: frozenset(p for p in each.owned if state.partition(p).base is not None)
        for each in state.operators.values()
        if each.owned
    }
    opened = OpenDrain(record.checkpoint, Map(participants))
    folding.set(drain=opened, checkpoint=record.checkpoint, asked_drain="")


def complete(folding: _Folding, record: Complete) -> None:
    """Positions, states and output become valid; released partitions become free."""
    drained = folding.state.drain
    assert drained is not None
    given = drained.contributions
    folding.set(partitions=merged(folding.state.partitions, given.values()))
    outputs = {who: each.output for who, each in given.items() if each.output}
    done = Checkpoint(record.checkpoint, record.attempt, Map(outputs))
    unpublished = (*folding.state.unpublished, done)
    folding.set(completed=record.checkpoint, drain=None, unpublished=unpublished, resets=0)
    for each in given.values():
        for partition in sorted(each.released):
            folding.free(partition)


def merged(
    partitions: Map[RegionPartition, Partition], contributions: Iterable[Contribution]
) -> Map[RegionPartition, Partition]:
    """Return the partitions with positions and states overlaid by contributions.

    Positions and state references without a contribution stay unchanged.
    """
    overlaid: dict[RegionPartition, Partition] = {}
    for each in contributions:
        for partition, offset in each.offsets.items():
            before = partitions[partition]
            state = each.states.get(partition, before.state)
            overlaid[partition] = replace(before, position=offset, state=state)
    return partitions.update(overlaid)


def publish(folding: _Folding, record: Published) -> None:
    """The checkpoint's output is published."""
    shown = record.checkpoint if record.has_output else folding.state.shown
    folding.set(unpublished=folding.state.unpublished[1:], shown=shown)


def reset(folding: _Folding, record: Reset) -> None:
    """The attempt begins; each partition goes to its current owner."""
    state = folding.state
    folding.set(
        attempt=record.attempt,
        drain=None,
        must_reset="",
        forced=False,
        exhausted="",
        resets=1 if record.forced else state.resets + 1,
    )
    for partition, known in sorted(state.partitions.items()):
        folding.grant(partition, _heir(state, known))


def _heir(state: RegionState, partition: Partition) -> OperatorId | None:
    """Return the owner of a partition after a reset."""
    if state.active(partition.waiting) is not None:
        return partition.waiting
    stays = state.active(partition.owner) is not None and not partition.lost
    return partition.owner if stays else None


def evict(folding: _Folding, record: Evict) -> None:
    """The incarnation ends."""
    operator = folding.state.operators[record.operator.name]
    folding.bury(operator, f"{operator.id} was evicted: {record.why}")


def exhaust(folding: _Folding, record: Exhausted) -> None:
    """The region waits for a forced reset."""
    folding.set(exhausted=record.why or "too many resets in a row", drain=None)


def note_snapshot(folding: _Folding, record: Snapshot) -> None:
    """Earlier records may be removed."""
    folding.set(snapshot_before=record.before)


def pass_over(_folding: _Folding, _record: RegionRecord) -> None:
    """Leave the state unchanged."""


_SAID = (when.is_active, when.is_new)
_DECIDED = (when.is_decided_by_the_controller,)

RULES: dict[type[RegionRecord], Rule] = {
    RegionSettled: Rule((when.is_first_or_equal,), settle),
    Registered: Rule((when.is_no_copy, when.knows_its_predecessor), register),
    Left: Rule(_SAID, leave),
    Claim: Rule(_SAID, claim),
    Unclaim: Rule((*_SAID, when.gives_back_nothing_contributed), unclaim),
    Lost: Rule(_SAID, lose),
    Leaving: Rule(_SAID, note_leaving),
    Start: Rule((*_SAID, when.is_first_start), start),
    Contribution: Rule(
        (
            *_SAID,
            when.is_of_present_attempt,
            when.is_of_open_drain,
            when.is_of_participant,
            when.is_first_contribution,
            when.covers_what_it_owns,
            when.owns_what_it_covers,
            when.goes_forward,
            when.mentions_only_what_it_covers,
        ),
        contribute,
    ),
    # A reset may begin while operators still return to the previous one; it then replaces it.
    ResetDone: Rule(
        (*_SAID, when.is_of_present_attempt), finish_reset, usual=(when.is_of_present_attempt,)
    ),
    Unhealthy: Rule(_SAID, fall_ill),
    Healthy: Rule(_SAID, recover),
    Ask: Rule((when.is_still_wanted,), ask),
    Controller: Rule((when.is_next_epoch,), take_over),
    Drain: Rule(
        (
            *_DECIDED,
            when.is_next_checkpoint,
            when.is_of_present_attempt,
            when.may_drain,
        ),
        drain,
    ),
    Complete: Rule(
        (
            *_DECIDED,
            when.is_of_open_drain,
            when.is_of_present_attempt,
            when.needs_no_reset,
            when.has_active_participants,
            when.has_all_contributions,
        ),
        complete,
    ),
    Published: Rule((*_DECIDED, when.is_oldest_unpublished), publish),
    Reset: Rule(
        (
            *_DECIDED,
            when.is_next_attempt,
            when.is_healthy,
            when.is_forced_with_reason,
            when.is_within_budget,
        ),
        reset,
    ),
    Evict: Rule((*_DECIDED, when.is_still_active), evict),
    Exhausted: Rule((*_DECIDED, when.is_of_present_attempt, when.is_exhausted), exhaust),
    Snapshot: Rule((*_DECIDED, when.is_newer_snapshot), note_snapshot),
    Trimmed: Rule((), pass_over),
}
"""The rule of each kind of record."""


def fold_in(
    state: RegionState, offset: int, record: RegionRecord | None
) -> tuple[RegionState, tuple[Fact, ...]]:
    """Return the state after one more record, and the observed facts.

    Args:
        state: The fold of the previous records.
        offset: Offset of the record; skipped offsets are known to be tombstones.
        record: The record; None: a tombstone, or bytes that are not a record.

    Raises:
        ValueError: The offset was already folded.
    """
    if offset < state.offset:
        raise ValueError(f"offset {offset} was folded already, up to {state.offset}")
    folding = _Folding(state, offset)
    if record is not None:
        _fold(folding, record)
    folding.set(offset=offset + 1)
    return folding.state, tuple(folding.facts)


def _fold(folding: _Folding, record: RegionRecord) -> None:
    rule = RULES[type(record)]
    broken = _broken(folding.state, rule, record)
    # Every record of an active operator uses up its number, even if it is refused.
    if broken is None or broken[0] not in _SAID:
        _count(folding, record)
    if broken is not None:
        condition, wrong = broken
        usual = condition in rule.usual
        name = condition.__name__
        folding.facts.append(Fact(folding.offset, name, wrong, is_refused=True, is_usual=usual))
        return
    rule.action(folding, record)
    folding.note(NAMES[type(record)], when.told(record))


def _broken(state: RegionState, rule: Rule, record: RegionRecord) -> tuple[Condition, str] | None:
    for condition in rule.conditions:
        wrong = condition(state, record)
        if wrong:
            return condition, wrong
    return None


def _count(folding: _Folding, record: RegionRecord) -> None:
    seq = getattr(record, "seq", None)
    writer = folding.state.active(getattr(record, "operator", None))
    if seq is not None and writer is not None:
        folding.change_operator(writer, seq=seq)
