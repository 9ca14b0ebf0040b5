"""The state of a region's log, computed independently from its records and decision 0026.

The fold of `kohort.region.machines` is one table of conditions and actions; this is plain code over
dictionaries that only shares the records with it. Every reader of the log must have the same state
as the referee (rule R12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeAlias

from msgspec import Struct, field

from kohort.region.machines import records as said
from kohort.region.machines.records import OperatorId, RegionPartition, RegionRecord, RegionSettings
from kohort.region.machines.state import RegionState

Summary: TypeAlias = tuple[object, ...]


class _Operator(Struct):
    id: OperatorId
    since: int
    attempt: int
    seq: int = 0
    is_ill: bool = False


class _Place(Struct):
    owner: OperatorId | None = None
    waiting: OperatorId | None = None
    is_lost: bool = False
    leaves: bool = False
    start: int | None = None
    position: int | None = None
    state: str = ""

    @property
    def base(self) -> int | None:
        return self.position if self.position is not None else self.start

    @property
    def told(self) -> Summary:
        ownership = self.owner, self.waiting, self.is_lost, self.leaves
        return (*ownership, self.start, self.position, self.state)


class _Collected(Struct):
    """An open checkpoint: the partitions that each operator must cover, and the contributions."""

    covers: dict[OperatorId, set[RegionPartition]]
    given: dict[OperatorId, dict[RegionPartition, int]] = field(default_factory=dict)
    states: dict[OperatorId, dict[RegionPartition, str]] = field(default_factory=dict)
    released: dict[OperatorId, set[RegionPartition]] = field(default_factory=dict)

    @property
    def told(self) -> Summary:
        return (
            sorted((who, sorted(covers)) for who, covers in self.covers.items()),
            sorted((who, sorted(offsets.items())) for who, offsets in self.given.items()),
            sorted((who, sorted(each.items())) for who, each in self.states.items()),
            sorted((who, sorted(each)) for who, each in self.released.items()),
        )


class Referee:
    """Reads every record that was ever appended.

    Attributes:
        offset: Everything before it was read.
        shown: The state at each offset.
    """

    def __init__(self) -> None:
        self.offset = 0
        self.shown: dict[int, Summary] = {}
        self.settings: RegionSettings | None = None
        self.operators: dict[str, _Operator] = {}
        self.places: dict[RegionPartition, _Place] = {}
        self.buried_at = -1
        self.epoch, self.controller = 0, ""
        self.attempt, self.checkpoint, self.completed = 1, 0, 0
        self.collected: _Collected | None = None
        self.unpublished: list[int] = []
        self.must_reset = self.is_forced = self.is_exhausted = False
        self.asked_drain = self.is_stopping = False
        self.resets, self.covered = 0, 0
        self.shown[0] = self._summary()

    def read(self, record: RegionRecord | None) -> None:
        """Read the next record; None: not a record of a region."""
        if record is not None:
            self._judge(record)
        self.offset += 1
        self.shown[self.offset] = self._summary()

    def _summary(self) -> Summary:
        operators = sorted(
            (e.id, e.since, e.attempt, e.seq, e.is_ill) for e in self.operators.values()
        )
        places = sorted((place, each.told) for place, each in self.places.items())
        return (
            ("controller", self.epoch, self.controller),
            ("counted", self.attempt, self.checkpoint, self.completed, self.resets, self.covered),
            ("needs", self.must_reset, self.is_forced, self.is_exhausted),
            ("asked", self.asked_drain, self.is_stopping),
            ("operators", operators, self.buried_at),
            ("partitions", places),
            ("open checkpoint", None if self.collected is None else self.collected.told),
            ("unpublished", list(self.unpublished)),
        )

    # ------------------------------------------------------------------------------------ judging

    def _judge(self, record: RegionRecord) -> None:
        if isinstance(record, _DECISIONS):
            if (record.epoch, record.incarnation) == (self.epoch, self.controller):
                self._acts[type(record)](self, record)
            return
        who = getattr(record, "operator", None)
        if who is None or isinstance(record, said.Registered):
            self._acts[type(record)](self, record)
            return
        operator = self._active(who)
        seq: int = getattr(record, "seq", 0)
        if operator is not None and seq > operator.seq:
            operator.seq = seq
            self._acts[type(record)](self, record)

    def _active(self, who: OperatorId | None) -> _Operator | None:
        found = None if who is None else self.operators.get(who.name)
        return found if found is not None and found.id == who else None

    def _need_reset(self, *, forced: bool = False) -> None:
        self.must_reset = True
        self.is_forced |= forced

    def _owned(self, who: OperatorId) -> set[RegionPartition]:
        return {place for place, each in self.places.items() if each.owner == who}

    def _bury(self, who: OperatorId) -> None:
        del self.operators[who.name]
        self.buried_at = self.offset
        if self._owned(who) or (self.collected is not None and who in self.collected.covers):
            self._need_reset()
        if not self.operators:
            self.is_stopping = False

    def _give(self, place: RegionPartition, who: OperatorId | None) -> None:
        each = self.places.setdefault(place, _Place())
        each.owner, each.waiting, each.is_lost, each.leaves = who, None, False, False

    def _release(self, place: RegionPartition) -> None:
        heir = self.places[place].waiting
        self._give(place, heir if self._active(heir) is not None else None)

    # -------------------------------------------------------------------- operators and others

    def _settle(self, record: said.RegionSettled) -> None:
        self.settings = self.settings or record.settings

    def _register(self, record: said.Registered) -> None:
        who = record.operator
        older = self.operators.get(who.name)
        if older is not None and older.id == who:
            return
        if record.after <= (self.buried_at if older is None else older.since):
            return
        if older is not None:
            self._bury(older.id)
        self.operators[who.name] = _Operator(who, self.offset, self.attempt)

    def _leave(self, record: said.Left) -> None:
        self._bury(record.operator)

    def _claim(self, record: said.Claim) -> None:
        for place in record.partitions:
            each = self.places.setdefault(place, _Place())
            if each.owner is None:
                self._give(place, record.operator)
            elif each.owner != record.operator or each.is_lost:
                each.waiting = record.operator
                self._need_reset(forced=True)

    def _unclaim(self, record: said.Unclaim) -> None:
        who, given = record.operator, {}
        if self.collected is not None:
            given = self.collected.given.get(who, {})
        places = [(place, self.places.get(place, _Place())) for place in record.partitions]
        if any(place in given and given[place] != each.base for place, each in places):
            return
        for place, each in places:
            if each.owner == who:
                self._uncollect(who, place)
                self._release(place)
            elif each.waiting == who:
                each.waiting = None

    def _uncollect(self, who: OperatorId, place: RegionPartition) -> None:
        if self.collected is None or who not in self.collected.covers:
            return
        self.collected.covers[who].discard(place)
        self.collected.given.get(who, {}).pop(place, None)
        self.collected.released.get(who, set()).discard(place)

    def _lose(self, record: said.Lost) -> None:
        for place in record.partitions:
            each = self.places.get(place, _Place())
            if each.owner == record.operator:
                each.is_lost = True
                self._need_reset(forced=True)
            elif each.waiting == record.operator:
                each.waiting = None

    def _announce(self, record: said.Leaving) -> None:
        for place in record.partitions & self._owned(record.operator):
            self.places[place].leaves = True

    def _start(self, record: said.Start) -> None:
        each = self.places.setdefault(record.partition, _Place())
        each.start = record.offset if each.start is None else each.start

    def _contribute(self, record: said.Contribution) -> None:
        who, collected = record.operator, self.collected
        if collected is None or record.attempt != self.attempt:
            return
        if record.checkpoint != self.checkpoint or who not in collected.covers:
            return
        if who in collected.given or not collected.covers[who] <= set(record.offsets):
            return
        for place, offset in record.offsets.items():
            each = self.places.get(place, _Place())
            if each.owner != who or each.base is None or offset < each.base:
                return
        if not (record.released | set(record.states)) <= set(record.offsets):
            return
        collected.given[who] = dict(record.offsets)
        collected.states[who] = dict(record.states)
        collected.released[who] = set(record.released)

    def _finish_reset(self, record: said.ResetDone) -> None:
        if record.attempt == self.attempt:
            self.operators[record.operator.name].attempt = record.attempt

    def _fall_ill(self, record: said.Unhealthy) -> None:
        self.operators[record.operator.name].is_ill = True
        self._need_reset()

    def _recover(self, record: said.Healthy) -> None:
        operator = self.operators[record.operator.name]
        if operator.is_ill:
            operator.is_ill = False
            self._need_reset()

    def _ask(self, record: said.Ask) -> None:
        if record.what == said.DRAIN:
            self.asked_drain |= record.checkpoint == self.checkpoint + 1
        elif record.what == said.RESET:
            if record.attempt == self.attempt and (record.force or not self.is_exhausted):
                self._need_reset(forced=record.force)
        elif self.operators:
            self.is_stopping = True

    # --------------------------------------------------------------------------------- controller

    def _take_over(self, record: said.Controller) -> None:
        if record.epoch == self.epoch + 1:
            self.epoch, self.controller = record.epoch, record.incarnation

    @property
    def _may_drain(self) -> bool:
        if self.must_reset or self.is_exhausted or self.collected is not None:
            return False
        late = (e for e in self.operators.values() if e.attempt < self.attempt)
        is_back = not any(self._owned(each.id) for each in late)
        ill = any(each.is_ill for each in self.operators.values())
        return bool(self.operators) and is_back and not ill

    def _drain(self, record: said.Drain) -> None:
        if record.checkpoint != self.checkpoint + 1 or record.attempt != self.attempt:
            return
        if self._may_drain:
            owners = ((e.id, self._owned(e.id)) for e in self.operators.values())
            covers = {
                who: {place for place in owned if self.places[place].base is not None}
                for who, owned in owners
                if owned
            }
            self.collected, self.checkpoint = _Collected(covers), record.checkpoint
            self.asked_drain = False

    def _complete(self, record: said.Complete) -> None:
        collected = self.collected
        if collected is None or self.must_reset or record.attempt != self.attempt:
            return
        is_whole = set(collected.covers) == set(collected.given)
        if record.checkpoint != self.checkpoint or not is_whole:
            return
        if any(self._active(who) is None for who in collected.covers):
            return
        for who, offsets in collected.given.items():
            for place, offset in offsets.items():
                self.places[place].position = offset
                self.places[place].state = collected.states[who].get(
                    place, self.places[place].state
                )
        self.completed, self.collected, self.resets = record.checkpoint, None, 0
        self.unpublished.append(record.checkpoint)
        for released in collected.released.values():
            for place in released:
                self._release(place)

    def _publish(self, record: said.Published) -> None:
        if self.unpublished[:1] == [record.checkpoint]:
            del self.unpublished[0]

    def _reset(self, record: said.Reset) -> None:
        is_ill = any(each.is_ill for each in self.operators.values())
        if record.attempt != self.attempt + 1 or is_ill or (record.forced and not self.is_forced):
            return
        most = self.settings.max_resets if self.settings is not None else 10
        if not record.forced and (self.is_exhausted or self.resets >= most):
            return
        self.attempt, self.collected = record.attempt, None
        self.resets = 1 if record.forced else self.resets + 1
        self.must_reset = self.is_forced = self.is_exhausted = False
        for place, each in self.places.items():
            if self._active(each.waiting) is not None:
                heir = each.waiting
            else:
                heir = None if each.is_lost or self._active(each.owner) is None else each.owner
            self._give(place, heir)

    def _evict(self, record: said.Evict) -> None:
        if self._active(record.operator) is not None:
            self._bury(record.operator)

    def _exhaust(self, record: said.Exhausted) -> None:
        most = self.settings.max_resets if self.settings is not None else 10
        may_go_on = self.is_forced or self.is_exhausted or self.resets < most
        if record.attempt == self.attempt and not may_go_on:
            self.is_exhausted, self.collected = True, None

    def _cover(self, record: said.Snapshot) -> None:
        if self.covered < record.before <= self.offset:
            self.covered = record.before

    def _nothing(self, record: said.Trimmed) -> None:
        """Ignore a tombstone."""

    _acts: ClassVar[dict[type[Any], Callable[[Referee, Any], None]]] = {
        said.RegionSettled: _settle,
        said.Registered: _register,
        said.Left: _leave,
        said.Claim: _claim,
        said.Unclaim: _unclaim,
        said.Lost: _lose,
        said.Leaving: _announce,
        said.Start: _start,
        said.Contribution: _contribute,
        said.ResetDone: _finish_reset,
        said.Unhealthy: _fall_ill,
        said.Healthy: _recover,
        said.Ask: _ask,
        said.Controller: _take_over,
        said.Drain: _drain,
        said.Complete: _complete,
        said.Published: _publish,
        said.Reset: _reset,
        said.Evict: _evict,
        said.Exhausted: _exhaust,
        said.Snapshot: _cover,
        said.Trimmed: _nothing,
    }


_DECISIONS = (
    *(said.Drain, said.Complete, said.Published, said.Reset),
    *(said.Evict, said.Exhausted, said.Snapshot, said.Trimmed),
)


def summary_of(state: RegionState) -> Summary:
    """Return the state of a fold in the form of the referee."""
    operators = sorted(
        (e.id, e.registered_at, e.attempt, e.seq, bool(e.unhealthy))
        for e in state.operators.values()
    )
    places = sorted(
        (place, (e.owner, e.waiting, e.lost, e.leaving, e.start, e.position, e.state))
        for place, e in state.partitions.items()
    )
    drain = None
    if state.drain is not None:
        given = state.drain.contributions.values()
        drain = (
            sorted((who, sorted(covers)) for who, covers in state.drain.participants.items()),
            sorted((e.operator, sorted(e.offsets.items())) for e in given),
            sorted((e.operator, sorted(e.states.items())) for e in given),
            sorted((e.operator, sorted(e.released)) for e in given),
        )
    return (
        ("controller", state.epoch, state.controller),
        (
            *("counted", state.attempt, state.checkpoint, state.completed),
            *(state.resets, state.snapshot_before),
        ),
        ("needs", bool(state.must_reset), state.forced, bool(state.exhausted)),
        ("asked", bool(state.asked_drain), state.stopping),
        ("operators", operators, state.buried_at),
        ("partitions", places),
        ("open checkpoint", drain),
        ("unpublished", [each.checkpoint for each in state.unpublished]),
    )


def difference(told: Iterable[object], known: Iterable[object]) -> str:
    """Return the first difference of two summaries; empty: none."""
    for one, other in zip(told, known, strict=True):
        if one != other:
            return f"{one} is {other} by the rules"
    return ""
