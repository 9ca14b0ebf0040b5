"""An operator's memory, and how one input changes it."""

from __future__ import annotations

from immutables import Map
from msgspec import Struct, field

from kohort.group.machine import State
from kohort.region.errors import RegionError
from kohort.region.machines.events import Append, MakeCut, OperatorEffects, Read
from kohort.region.machines.records import (
    Contribution,
    OperatorId,
    Partitions,
    RegionPartition,
    RegionRecord,
    RegionSettings,
)
from kohort.region.machines.state import Fact, Operator, RegionState
from kohort.values import replace

NONE: Partitions = frozenset()
CHECKPOINT = "checkpoint"
RESET = "reset"
_AGAIN_MS = 500
# An operator in IBM Streams waits at most this long for a merged checkpoint.
MERGE_MAX_MS = 15_000


class OperatorState(State):
    """The client states of IBM Streams, and three final states."""

    INITIALIZED = "not registered yet"
    SUBSCRIBED = "registered, nothing delivered yet"
    RECORDS_FETCHED = "has delivered records since it began or was reset"
    CR_RESET_PENDING = "delivers nothing, waits for a reset or goes back"
    RESET_COMPLETE = "at the positions of the attempt, nothing delivered since"
    CLOSED = "has left"
    FENCED = "another process has its name, or it was evicted"
    FAILED = "cannot be part of this region"


class OperatorConfig(Struct, frozen=True, kw_only=True):
    """The configuration of an operator.

    Attributes:
        id: Its name, and the unique incarnation of its process.
        host: Where it runs.
        process: Its process, for display.
        client_id: Its client id in the group.
        settings: The settings that it expects the region to have.
        rebalance: "checkpoint": a partition that moves is handed over with a checkpoint; "reset":
            the region resets when a partition moves whose records were delivered.
        merge_timeout_ms: Milliseconds that a reset may wait for the merged checkpoint before a
            warning.
    """

    id: OperatorId
    host: str
    process: str
    client_id: str
    settings: RegionSettings
    rebalance: str = CHECKPOINT
    merge_timeout_ms: int = MERGE_MAX_MS


class Reading(Struct, frozen=True):
    """A partition that is read, or was read since the last grant or reset.

    Attributes:
        read: Number of the `Read`.
        next: Offset after the last delivered record.
        is_stopping: Whether it was asked to stop; it is then always given back.
        is_stopped: Whether it has stopped.
    """

    read: int
    next: int
    is_stopping: bool = False
    is_stopped: bool = False


class OperatorSession(Struct, frozen=True, kw_only=True):
    """An operator's memory; immutable.

    Attributes:
        state: Its state.
        folded: The region, as far as the log was read.
        counts: Number of partitions of each of the group's topics, by topic id.
        assigned: Partitions that the group has assigned and not revoked.
        revoking: Partitions that the group is revoking while the listener waits.
        is_holding: Whether the listener waits.
        deadline: When the listener must return at the latest.
        reading: Partitions that are or were read.
        lost: Partitions whose loss must be written to the log.
        finding: Partitions whose start is being looked up.
        found: Start positions that were found.
        attempt: The attempt that it follows; 0: none yet.
        cut: The cut in progress, and the partitions it releases.
        contribution: The contribution to be written to the log.
        needs_reset: The reason for a reset that the log does not show yet.
        merge_due: When to warn that a reset's merged checkpoint is overdue.
        ill: Why it cannot continue.
        is_closing: Whether it gives everything back and leaves.
        close_deadline: When it must leave at the latest.
        has_left: Whether it wrote its `Left` record.
        claimed: The partitions in its last claim.
        claim_again: When it may repeat the claim.
        seq: Number of its last record.
        reads: Number of the last `Read`.
        token: Number of the last append.
        in_flight: Whether that append is still running.
        read_to: Offset up to which the log must be folded to know its result.
    """

    state: OperatorState = OperatorState.INITIALIZED
    folded: RegionState | None = None
    counts: Map[str, int] = Map()
    assigned: Partitions = NONE
    revoking: Partitions = NONE
    is_holding: bool = False
    deadline: int | None = None
    reading: Map[RegionPartition, Reading] = Map()
    lost: Partitions = NONE
    finding: Partitions = NONE
    found: Map[RegionPartition, int] = Map()
    attempt: int = 0
    cut: MakeCut | None = None
    releases: Partitions = NONE
    contribution: Contribution | None = None
    needs_reset: str = ""
    merge_due: int | None = None
    ill: str = ""
    is_closing: bool = False
    close_deadline: int | None = None
    has_left: bool = False
    claimed: Partitions = NONE
    claim_again: int = 0
    seq: int = 0
    reads: int = 0
    token: int = 0
    in_flight: bool = False
    read_to: int = 0

    @property
    def wanted(self) -> Partitions:
        """The partitions that it should own."""
        return NONE if self.is_closing else self.assigned - self.revoking


class OperatorDecision(Struct, kw_only=True):
    """The changes made by one input to an operator while its handlers run."""

    config: OperatorConfig
    session: OperatorSession
    now: int
    discard: int | None = None
    stops: Partitions = NONE
    cut: MakeCut | None = None
    find_starts: Partitions = NONE
    find_beginnings: Partitions = NONE
    reads: list[Read] = field(default_factory=list)
    appended: Append | None = None
    ends_revocation: bool = False
    failed: RegionError | None = None
    is_closed: bool = False
    evicted: str = ""
    observed: list[Fact] = field(default_factory=list)
    # Cached answers from the log, valid while the state is unchanged.
    _looked_at: RegionState | None = None
    _me: Operator | None = None
    _owned: Partitions = NONE
    _awaited: Partitions = NONE

    @property
    def state(self) -> OperatorState:
        """The operator's state."""
        return self.session.state

    def _look(self) -> None:
        folded = self.session.folded
        if folded is self._looked_at or folded is None:
            return
        mine, partitions = self.config.id, folded.partitions
        me = folded.active(mine)
        owned = () if me is None else me.owned
        self._looked_at, self._me = folded, me
        self._owned = frozenset(each for each in owned if not partitions[each].lost)
        waiting = (each for each, known in partitions.items() if known.waiting == mine)
        self._awaited = frozenset(waiting)

    @property
    def folded(self) -> RegionState:
        """The region, as far as the log was read."""
        return self.session.folded or _NOTHING_YET

    @property
    def me(self) -> Operator | None:
        """This incarnation in the log; None: it is not active."""
        self._look()
        return self._me

    @property
    def owned(self) -> Partitions:
        """The partitions that it owns in the log and has not lost there."""
        self._look()
        return self._owned

    @property
    def awaited(self) -> Partitions:
        """The partitions that it waits for in the log."""
        self._look()
        return self._awaited

    @property
    def is_free(self) -> bool:
        """Whether the log shows the result of all its records."""
        session = self.session
        if session.in_flight or session.folded is None:
            return False
        return session.folded.offset >= session.read_to

    def is_clean(self, partition: RegionPartition) -> bool:
        """Whether complete checkpoints contain everything delivered from a partition."""
        reading = self.session.reading.get(partition)
        return reading is None or reading.next == self.folded.partition(partition).base

    def says(self, *records: RegionRecord) -> None:
        """Append records; numbered records were created with `number`."""
        token = self.session.token + 1
        self.session = replace(self.session, token=token, in_flight=True)
        self.appended = Append(token, records)

    def number(self) -> int:
        """Return the number of the next record."""
        me = self.me
        last = max(self.session.seq, 0 if me is None else me.seq)
        self.session = replace(self.session, seq=last + 1)
        return self.session.seq

    def stop(self, partitions: Partitions) -> None:
        """Stop reading those of the partitions that are being read."""
        reading = self.session.reading
        for each in partitions & frozenset(reading):
            known = reading[each]
            if not known.is_stopping:
                reading = reading.set(each, replace(known, is_stopping=True))
                self.stops |= {each}
        self.session = replace(self.session, reading=reading)

    def claims(self, partitions: Partitions) -> None:
        """Remember the claimed partitions, so that the claim is not repeated at once."""
        self.session = replace(self.session, claimed=partitions, claim_again=self.now + _AGAIN_MS)

    def note(self, rule: str, text: str) -> None:
        """Add a fact to what was observed."""
        self.observed.append(Fact(-1, rule, text))

    def warn(self, rule: str, text: str) -> None:
        """Add a fact that needs attention to what was observed."""
        self.observed.append(Fact(-1, rule, text, is_warning=True))

    def effects(self) -> OperatorEffects:
        """Return the effects of the input."""
        session = self.session
        times = [session.deadline, session.close_deadline, session.merge_due]
        if session.claimed and session.claim_again > self.now:
            times.append(session.claim_again)
        return OperatorEffects(
            session=session,
            discard=self.discard,
            stops=self.stops,
            cut=self.cut,
            find_starts=self.find_starts,
            find_beginnings=self.find_beginnings,
            reads=tuple(self.reads),
            append=self.appended,
            ends_revocation=self.ends_revocation,
            failed=self.failed,
            is_closed=self.is_closed,
            deadline=min((each for each in times if each is not None), default=None),
            observed=tuple(self.observed),
        )


_NOTHING_YET = RegionState()
