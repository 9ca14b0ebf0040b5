"""The history of a region for display: its records combined into checkpoints, resets, etc.

The fold decides which records count; this module only displays them. Compaction may have removed
any record, so nothing here relies on an earlier record. Times are those of the records, each by the
clock of the process that wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from kohort.region.machines.records import (
    DRAIN,
    RESET,
    STOP,
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
    Published,
    RegionRecord,
    Registered,
    Reset,
    ResetDone,
    Unclaim,
    Unhealthy,
)
from kohort.values import replace

CHECKPOINT = "checkpoint"
REBALANCE = "rebalance"
OTHER = "region"

# How many of each kind are kept: many checkpoints must not displace rare events.
KEPT = 200
# Partitions that move within this time belong to one rebalance.
_QUIET_MS = 5_000

_RUNNING = "running"
_COMPLETE = "complete"
_PUBLISHED = "published"
_BURNT = "burnt by a reset"
_DONE = "done"


class Happening(Struct, frozen=True, kw_only=True):
    """An event that has happened, or is in progress.

    Attributes:
        id: Its number.
        version: Grows with each change of any happening.
        kind: "checkpoint", "reset", "rebalance" or "region".
        title: A short description.
        began: When it began, in milliseconds since 1970.
        took: Its duration in milliseconds; None: it is in progress, or has no duration.
        outcome: Its result.
        cause: Its cause.
        detail: Further details.
    """

    id: int
    version: int
    kind: str
    title: str
    began: int
    took: int | None = None
    outcome: str = ""
    cause: str = ""
    detail: str = ""

    def as_dict(self) -> dict[str, object]:
        """Return it as a dict for JSON."""
        return asdict(self)


class Timeline:
    """The history so far; pass the records to `take`, in log order."""

    def __init__(self) -> None:
        self.version = 0
        self._next = 0
        self._kept: dict[str, dict[int, Happening]] = {}
        self._epoch = 0
        self._asked = ""
        self._names: dict[str, str] = {}
        self._checkpoints: dict[int, Happening] = {}
        self._drained: dict[str, int] = {}
        self._reset: tuple[int, Happening] | None = None
        self._rebalance: tuple[int, Happening] | None = None
        self._moves: dict[str, int] = {}

    def since(self, version: int) -> list[Happening]:
        """Return the events that changed after a version, oldest first."""
        kept = (each for kind in self._kept.values() for each in kind.values())
        return sorted((each for each in kept if each.version > version), key=lambda e: e.id)

    def take(self, record: RegionRecord, at: int) -> None:
        """Add a record and the time it was written, in milliseconds since 1970."""
        match record:
            case Ask():
                self._ask(record, at)
            case Contribution():
                if record.checkpoint in self._checkpoints:
                    self._drained[record.operator.name] = at
            case ResetDone():
                self._end_reset(record, at)
            case Unhealthy():
                self._add(OTHER, f"{record.operator.name} is unhealthy", at, cause=record.why)
            case Healthy():
                self._add(OTHER, f"{record.operator.name} is healthy again", at)
            case Controller():
                self._controller(record, at)
            case Drain() | Complete() | Published() | Reset() | Exhausted() | Evict():
                if record.epoch >= self._epoch:  # otherwise the fold ignores it
                    self._decision(record, at)
            case Registered() | Left() | Claim() | Unclaim() | Lost() | Leaving():
                self._membership(record, at)

    # ------------------------------------------------------------------------------- events kept

    def _add(self, kind: str, title: str, began: int, **more: Any) -> Happening:  # noqa: ANN401  # attributes of a happening
        self._next += 1
        return self._keep(
            Happening(id=self._next, version=0, kind=kind, title=title, began=began, **more)
        )

    def _change(self, happening: Happening, **changes: Any) -> Happening:  # noqa: ANN401  # its attributes
        changed: Happening = replace(happening, **changes)
        return self._keep(changed)

    def _keep(self, happening: Happening) -> Happening:
        self.version += 1
        happening = replace(happening, version=self.version)
        kept = self._kept.setdefault(happening.kind, {})
        kept[happening.id] = happening
        if len(kept) > KEPT:
            del kept[min(kept)]
        return happening

    # --------------------------------------------------------------------- asks and the controller

    def _ask(self, ask: Ask, at: int) -> None:
        why = f"asked for by {ask.writer}" + (f": {ask.why}" if ask.why else "")
        if ask.what == STOP:
            self._add(OTHER, "the region is asked to stop", at, cause=why)
        elif ask.what == DRAIN:  # a reset has its own reason
            self._asked = why

    def _controller(self, record: Controller, at: int) -> None:
        if self._epoch and record.epoch != self._epoch + 1:
            return  # another candidate was faster
        self._epoch = record.epoch
        name = self._names.get(record.incarnation, record.incarnation[:8])
        self._add(OTHER, f"{name} is the controller", at, detail=f"epoch {record.epoch}")

    def _decision(
        self, record: Drain | Complete | Published | Reset | Exhausted | Evict, at: int
    ) -> None:
        match record:
            case Drain():
                self._drain(record, at)
            case Complete():
                self._complete(record, at)
            case Published():
                self._published(record, at)
            case Reset():
                self._begin_reset(record, at)
            case Exhausted():
                self._add("reset", "the region gave up", at, cause=record.why)
            case Evict():
                self._rebalances(at, f"{record.operator.name} was evicted: {record.why}")

    # --------------------------------------------------------------------------------- checkpoints

    def _drain(self, record: Drain, at: int) -> None:
        if record.checkpoint in self._checkpoints:
            return
        self._drained.clear()
        if self._reset is not None and self._reset[1].outcome == _RUNNING:
            attempt, reset = self._reset  # no operator owned a partition, so none had to go back
            self._reset = (attempt, self._change(reset, took=0, outcome=_DONE))
        self._checkpoints.pop(record.checkpoint - KEPT, None)
        cause, self._asked = self._asked, ""
        self._checkpoints[record.checkpoint] = self._add(
            CHECKPOINT,
            f"checkpoint {record.checkpoint}",
            at,
            outcome=_RUNNING,
            cause=cause,
        )

    def _complete(self, record: Complete, at: int) -> None:
        happening = self._checkpoints.get(record.checkpoint)
        if happening is None or happening.outcome != _RUNNING:
            return
        detail = ""
        if self._drained:
            slowest = max(self._drained, key=lambda name: self._drained[name])
            took = max(0, self._drained[slowest] - happening.began)
            detail = f"slowest: {slowest} ({took} ms)" if len(self._drained) > 1 else ""
        self._checkpoints[record.checkpoint] = self._change(
            happening, took=max(0, at - happening.began), outcome=_COMPLETE, detail=detail
        )

    def _published(self, record: Published, at: int) -> None:
        happening = self._checkpoints.pop(record.checkpoint, None)
        if happening is None or happening.took is None:
            return
        later = max(0, at - happening.began - happening.took)
        parts = (happening.detail, f"visible {later} ms later")
        detail = "; ".join(each for each in parts if each)
        self._change(happening, outcome=_PUBLISHED, detail=detail)

    # -------------------------------------------------------------------------------------- resets

    def _begin_reset(self, record: Reset, at: int) -> None:
        for number, each in list(self._checkpoints.items()):
            if each.outcome == _RUNNING:
                self._change(self._checkpoints.pop(number), outcome=_BURNT)
        if self._reset is not None and self._reset[0] >= record.attempt:
            return
        happening = self._add(
            RESET,
            f"reset to attempt {record.attempt}",
            at,
            outcome=_RUNNING,
            cause=record.why,
            detail="forced" if record.forced else "",
        )
        self._reset = (record.attempt, happening)

    def _end_reset(self, record: ResetDone, at: int) -> None:
        """Record that an operator has returned; the last one ends the reset."""
        if self._reset is not None and self._reset[0] == record.attempt:
            attempt, happening = self._reset
            took = max(0, at - happening.began, happening.took or 0)
            self._reset = (attempt, self._change(happening, took=took, outcome=_DONE))

    # ---------------------------------------------------------------------------------- rebalances

    def _membership(
        self, record: Registered | Left | Claim | Unclaim | Lost | Leaving, at: int
    ) -> None:
        name = record.operator.name
        match record:
            case Registered():
                self._names[record.operator.incarnation] = name
                self._rebalances(at, f"{name} joined")
            case Left():
                self._rebalances(at, f"{name} left")
            case Lost():
                self._rebalances(at, f"{name} lost partitions", {name: -len(record.partitions)})
            case Claim():
                self._rebalances(at, "", {name: len(record.partitions)})
            case Unclaim() | Leaving():
                self._rebalances(at, "", {name: -len(record.partitions)})

    def _rebalances(self, at: int, cause: str, moves: Mapping[str, int] | None = None) -> None:
        if self._rebalance is None or at - self._rebalance[0] > _QUIET_MS:
            self._moves = {}
            self._rebalance = (at, self._add(REBALANCE, "partitions change hands", at, took=0))
        last, happening = self._rebalance
        for name, count in (moves or {}).items():
            self._moves[name] = self._moves.get(name, 0) + count
        causes = [each for each in happening.cause.split("; ") if each]
        if cause and cause not in causes:
            causes.append(cause)
        last = max(at, last)
        self._rebalance = (
            last,
            self._change(
                happening,
                took=last - happening.began,
                cause="; ".join(causes),
                detail=_told_moves(self._moves),
            ),
        )


def _told_moves(moves: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:+d}" for name, count in sorted(moves.items()) if count)
