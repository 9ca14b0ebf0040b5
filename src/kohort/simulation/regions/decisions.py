"""Checks each decision of a process, given its inputs so far.

`checkers` checks a region from outside; this module checks single steps. It follows the rules and
not the tables, with its own records of cuts, of missing operators and of waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from kohort.region.machines.controller import ControllerMachine
from kohort.region.machines.events import (
    Chosen,
    ControllerEffects,
    ControllerInput,
    CutMade,
    Discarded,
    GroupDescribed,
    OperatorEffects,
    OperatorInput,
    Read,
)
from kohort.region.machines.records import (
    Contribution,
    Evict,
    Partitions,
    RegionPartition,
    RegionRecord,
    RegionSettings,
    Reset,
    ResetDone,
    Snapshot,
)
from kohort.region.machines.snapshot import load
from kohort.region.machines.state import Phase, RegionState
from kohort.simulation.seeded import RuleBrokenError

# A decision may wait for a fetch of the log, and for an append with an unknown result.
_SLACK_MS = 100


class _Cut(Struct):
    made: CutMade
    running: Partitions


class OperatorWatch:
    """R13: an operator's reports match its work exactly.

    A contribution has the positions of the cut, or for a newer `Read` of a partition its first
    offset, and releases only partitions that have stopped. An operator reports the end of a reset
    only when its work has discarded everything from before.
    """

    def __init__(self) -> None:
        self._cuts: dict[tuple[int, int], _Cut] = {}
        self._reads: dict[RegionPartition, Read] = {}
        self._now_read: dict[tuple[int, int], dict[RegionPartition, Read]] = {}
        self._discarded = 0

    def cut(self, made: CutMade, running: Iterable[RegionPartition]) -> None:
        """Note a cut, after which these partitions continue."""
        self._cuts[made.checkpoint, made.attempt] = _Cut(made, frozenset(running))

    def told(self, event: OperatorInput, effects: OperatorEffects) -> None:
        """Check an operator's decision on an input."""
        if isinstance(event, CutMade):
            self._now_read[event.checkpoint, event.attempt] = dict(self._reads)
        if isinstance(event, Discarded):
            self._discarded = max(self._discarded, event.attempt)
        if effects.discard is not None:
            self._reads.clear()
        for read in effects.reads:
            self._reads[read.partition] = read
        for record in _records(effects):
            if isinstance(record, Contribution):
                self._check(record)
                for place in record.released:  # it may return, and be cut before it is read
                    self._reads.pop(place, None)
            elif isinstance(record, ResetDone) and record.attempt > self._discarded:
                raise RuleBrokenError(
                    "R13",
                    f"{record.operator} is back in attempt {record.attempt}, its work has"
                    f" discarded only what was before {self._discarded}",
                )

    def _check(self, given: Contribution) -> None:
        of = given.checkpoint, given.attempt
        cut, reads = self._cuts.get(of), self._now_read.get(of)
        if cut is None or reads is None:
            raise RuleBrokenError("R13", f"{given.operator} contributes to {of} without a cut")
        made = cut.made
        for place, offset in given.offsets.items():
            read = reads.get(place)
            if read is None:
                continue
            is_same = made.reads.get(place) == read.read
            expected = made.positions[place] if is_same else read.offset
            if offset != expected:
                raise RuleBrokenError(
                    "R13", f"{given.operator} contributes {place}@{offset}, cut at {expected}"
                )
            if place in given.released and is_same and place in cut.running:
                raise RuleBrokenError("R13", f"{given.operator} releases {place}, which goes on")


class ControllerWatch:
    """R14 to R16: a controller's evictions, waits and removals.

    R14: an operator is evicted when it was missing in the group for as long as configured, or did
    not come back from a reset in time; its member is removed from the group. R15: a checkpoint or a
    reset that takes too long ends, and not before. R16: a snapshot is the state that it was made
    of, and only records that it covers are removed.

    Args:
        controller: The candidate.
        settings: Settings of the region.
        clock: Returns the time on the clock of its process.
    """

    def __init__(
        self, controller: ControllerMachine, settings: RegionSettings, clock: Callable[[], int]
    ) -> None:
        self._controller = controller
        self._settings = settings
        self._clock = clock
        self._missing: dict[str, int] = {}
        self._members: dict[str, str] = {}
        self._wait: tuple[object, ...] = ()
        self._since = self._chosen_at = 0

    def told(self, event: ControllerInput, effects: ControllerEffects) -> None:
        """Check a candidate's decision on an input."""
        now, folded = self._clock(), self._controller.session.folded
        if isinstance(event, Chosen):
            self._chosen_at = now
            self._missing.clear()
        if isinstance(event, GroupDescribed):
            self._described(event, folded, now)
        if folded is None:
            return
        self._note_wait(folded, now)
        records = _records(effects)
        self._check_waits(folded, records, now)
        for record in records:
            if isinstance(record, Evict):
                self._check_eviction(record, folded, effects, now)
            elif isinstance(record, Snapshot) and load(record.state) != folded:
                raise RuleBrokenError(
                    "R16", f"the snapshot before {record.before} is another state"
                )
        if effects.trim is not None and effects.trim.before > folded.snapshot_before:
            raise RuleBrokenError(
                "R16",
                f"all before {effects.trim.before} is removed, a snapshot covers what is before"
                f" {folded.snapshot_before}",
            )

    def _described(self, event: GroupDescribed, folded: RegionState | None, now: int) -> None:
        self._members = {each.client_id: each.member_id for each in event.members}
        operators = () if folded is None else tuple(folded.operators.values())
        absent = [str(e.id) for e in operators if e.client_id not in self._members]
        self._missing = {who: self._missing.get(who, now) for who in absent}

    def _note_wait(self, folded: RegionState, now: int) -> None:
        wait: tuple[object, ...] = ()
        if folded.phase is Phase.DRAINING:
            wait = ("drain", folded.checkpoint)
        elif folded.phase is Phase.RESETTING:
            wait = ("reset", folded.attempt)
        if wait != self._wait:
            self._wait, self._since = wait, now

    def _waited(self, now: int) -> int:
        return now - max(self._since, self._chosen_at)

    def _check_waits(
        self, folded: RegionState, records: tuple[RegionRecord, ...], now: int
    ) -> None:
        settings, waited = self._settings, self._waited(now)
        resets = [each for each in records if isinstance(each, Reset)]
        is_early = self._wait[:1] == ("drain",) and waited < settings.drain_timeout_ms
        if resets and is_early and not folded.must_reset:
            raise RuleBrokenError("R15", f"a checkpoint was given up after {waited} ms")
        session = self._controller.session
        decides = folded.controller == self._controller.config.incarnation
        is_free = session.is_chosen and decides and not session.in_flight
        if not self._wait or records or not is_free or folded.offset < session.read_to:
            return
        limit = settings.drain_timeout_ms
        if self._wait[0] == "reset":
            limit = settings.reset_timeout_ms
        if waited > limit + _SLACK_MS:
            raise RuleBrokenError("R15", f"{self._wait} is waited for since {waited} ms")

    def _check_eviction(
        self, record: Evict, folded: RegionState, effects: ControllerEffects, now: int
    ) -> None:
        operator = folded.active(record.operator)
        if operator is None:
            return
        config, settings = self._controller.config, self._settings
        missing = now - self._missing.get(str(operator.id), now)
        is_slow = self._wait[:1] == ("reset",) and self._waited(now) >= settings.reset_timeout_ms
        is_slow = is_slow and operator in folded.awaited()
        if missing < config.gone_ms and not is_slow:
            text = f"{operator.id} is evicted: missing for {missing} ms, and not slow"
            raise RuleBrokenError("R14", text)
        member = self._members.get(operator.client_id)
        if member is not None and member not in effects.remove_from_group:
            raise RuleBrokenError("R14", f"{operator.id} is evicted and stays in the group")


def _records(effects: OperatorEffects | ControllerEffects) -> tuple[RegionRecord, ...]:
    return () if effects.append is None else effects.append.records
