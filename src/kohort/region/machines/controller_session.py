"""What a candidate for the controller knows, and what one input does to it."""

from __future__ import annotations

from immutables import Map
from msgspec import Struct, field

from kohort.region.machines.events import (
    Append,
    Asked,
    ControllerEffects,
    GroupMember,
    Publish,
    Trim,
)
from kohort.region.machines.facts import Fact
from kohort.region.machines.records import (
    PERIODIC,
    OperatorId,
    RegionRecord,
    RegionSettings,
)
from kohort.region.machines.state import Phase, RegionState
from kohort.values import replace


class ControllerConfig(Struct, frozen=True, kw_only=True):
    """One candidate.

    Attributes:
        incarnation: What no other candidate ever is called.
        settings: What it takes the region's settings to be, should it be the first.
        gone_ms: How long a member is missing in the described group until its operator is evicted.
        join_ms: The same for an operator that was never seen in the group.
        stranger_ms: How long a member without an operator is in the group until it is reported.
        publish_retry_ms: Wait before a checkpoint is published again.
        unpublished_max: Complete checkpoints that may wait to be published; then nothing drains.
        snapshot_every: Offsets from one snapshot to the next.
    """

    incarnation: str
    settings: RegionSettings
    gone_ms: int = 2_000
    join_ms: int = 60_000
    stranger_ms: int = 10_000
    publish_retry_ms: int = 1_000
    unpublished_max: int = 50
    snapshot_every: int = 1_000


class ControllerSession(Struct, frozen=True, kw_only=True):
    """All that a candidate knows; a value.

    Attributes:
        folded: The region as far as the log was read.
        is_chosen: Whether it is the one to try.
        wait: What the region waits for, as (what, checkpoint or attempt), and since when.
        waiting_since: See `wait`.
        progress: What changes when a drain or a reset ends, and when it did so last.
        progress_at: See `progress`.
        seen: Operators that were in the group.
        missing: Since when operators are not in the group.
        gone: Operators that are out of the group for good.
        members: The group, as described last.
        strangers: Since when members of the group have no operator, by client id.
        publishing: The checkpoint that is being published; 0: none.
        published: The last one that is visible.
        publish_after: When the next try may begin.
        trimmed: Up to which snapshot records were removed.
        asks: What was asked for in this process.
        token: Number of the last append.
        in_flight: Whether that append has not ended.
        read_to: How far the log has to be folded to know what became of it.
    """

    folded: RegionState | None = None
    is_chosen: bool = False
    wait: tuple[str, int] = ("", 0)
    waiting_since: int = 0
    progress: tuple[int, int, bool] = (-1, -1, False)
    progress_at: int = 0
    seen: frozenset[OperatorId] = frozenset()
    missing: Map[OperatorId, int] = Map()
    gone: frozenset[OperatorId] = frozenset()
    members: tuple[GroupMember, ...] = ()
    strangers: Map[str, int] = Map()
    publishing: int = 0
    published: int = 0
    publish_after: int = 0
    trimmed: int = 0
    asks: tuple[Asked, ...] = ()
    token: int = 0
    in_flight: bool = False
    read_to: int = 0


class ControllerDecision(Struct, kw_only=True):
    """What one input does to a candidate, while its handlers run."""

    config: ControllerConfig
    session: ControllerSession
    now: int
    appended: Append | None = None
    trim: Trim | None = None
    publish: Publish | None = None
    removed: list[str] = field(default_factory=list)
    observed: list[Fact] = field(default_factory=list)
    _looked_at: RegionState | None = None
    _phase: Phase = Phase.STARTED

    @property
    def state(self) -> Phase:
        """The region's phase."""
        folded = self.folded
        if folded is not self._looked_at:
            self._looked_at, self._phase = folded, folded.phase
        return self._phase

    @property
    def folded(self) -> RegionState:
        """The region, as far as the log was read."""
        return self.session.folded or _NOTHING_YET

    @property
    def settings(self) -> RegionSettings:
        """The region's settings."""
        return self.folded.settings or self.config.settings

    @property
    def is_controller(self) -> bool:
        """Whether the log says that it is the one that decides."""
        return self.folded.controller == self.config.incarnation

    @property
    def is_free(self) -> bool:
        """Whether the log shows what became of everything that it decided."""
        session = self.session
        if session.in_flight or session.folded is None:
            return False
        return session.folded.offset >= session.read_to

    def decides(self, *records: RegionRecord) -> None:
        """Append records."""
        token = self.session.token + 1
        self.session = replace(self.session, token=token, in_flight=True)
        self.appended = Append(token, records)

    def note(self, rule: str, text: str, *, is_warning: bool = False) -> None:
        """Observe something."""
        self.observed.append(Fact(-1, rule, text, is_warning=is_warning))

    def effects(self) -> ControllerEffects:
        """Return what all of it leads to."""
        return ControllerEffects(
            session=self.session,
            append=self.appended,
            trim=self.trim,
            publish=self.publish,
            remove_from_group=tuple(self.removed),
            deadline=min(_deadlines(self), default=None),
            observed=tuple(self.observed),
        )


_NOTHING_YET = RegionState()
DRAIN = "drain"
RESET = "reset"


def _deadlines(decision: ControllerDecision) -> list[int]:
    session, settings = decision.session, decision.settings
    if not session.is_chosen or not decision.is_controller:
        return []
    times = [
        session.waiting_since + limit
        for what, limit in (
            (DRAIN, settings.drain_timeout_ms),
            (RESET, settings.reset_timeout_ms),
        )
        if session.wait[0] == what
    ]
    if settings.mode == PERIODIC and decision.state in (Phase.PROCESSING, Phase.CHECKPOINT_PENDING):
        times.append(session.progress_at + settings.period_ms)
    if decision.folded.unpublished:
        times.append(session.publish_after)
    return [each for each in times if each > decision.now]
