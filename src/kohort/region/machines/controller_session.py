"""A controller candidate's memory, and how one input changes it."""

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
from kohort.region.machines.records import (
    PERIODIC,
    OperatorId,
    RegionRecord,
    RegionSettings,
)
from kohort.region.machines.state import Fact, Phase, RegionState
from kohort.values import replace


class ControllerConfig(Struct, frozen=True, kw_only=True):
    """The configuration of a candidate.

    Attributes:
        incarnation: A unique name of the candidate.
        settings: The settings of a new region, used by the first candidate.
        gone_ms: Milliseconds without a member in the described group after which an operator is
            evicted.
        join_ms: The same for an operator that was never seen in the group.
        stranger_ms: Milliseconds after which a member without an operator is reported.
        publish_retry_ms: Delay before publishing a checkpoint is retried, in milliseconds.
        unpublished_max: Maximum number of complete checkpoints that wait to be published; above it,
            no drain begins.
        snapshot_every: Number of offsets between snapshots.
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
    """A candidate's memory; immutable.

    Attributes:
        folded: The region, as far as the log was read.
        is_chosen: Whether the group has chosen this candidate.
        wait: What the region waits for, as (what, checkpoint or attempt).
        waiting_since: When that wait began.
        progress: A value that changes when a drain or a reset ends.
        progress_at: When it last changed.
        seen: Operators that have been in the group.
        missing: When each operator was first missing from the group.
        gone: Operators that have left the group for good.
        members: The last description of the group.
        strangers: When each member without an operator was first seen, by client id.
        publishing: The checkpoint that is being published; 0: none.
        published: The last published checkpoint.
        publish_after: Earliest time of the next attempt to publish.
        trimmed: The snapshot up to which records were removed.
        asks: Requests made in this process.
        token: Number of the last append.
        in_flight: Whether that append is still running.
        read_to: Offset up to which the log must be folded to know its result.
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
    """The changes made by one input to a candidate while its handlers run."""

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
        """Whether the log names this candidate as the controller."""
        return self.folded.controller == self.config.incarnation

    @property
    def is_free(self) -> bool:
        """Whether the log shows the result of every decision."""
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
        """Add a fact to what was observed."""
        self.observed.append(Fact(-1, rule, text, is_warning=is_warning))

    def effects(self) -> ControllerEffects:
        """Return the effects of the input."""
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
