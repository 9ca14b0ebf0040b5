"""What the machine of an operator knows, and what one input does to it."""

from __future__ import annotations

from immutables import Map
from msgspec import Struct, field

from kohort.group.machine import State
from kohort.region.errors import RegionError
from kohort.region.machines.events import Append, MakeCut, OperatorEffects, Read
from kohort.region.machines.facts import Fact
from kohort.region.machines.records import (
    Contribution,
    OperatorId,
    Partitions,
    RegionPartition,
    RegionRecord,
    RegionSettings,
)
from kohort.region.machines.state import Operator, RegionState
from kohort.values import replace

NONE: Partitions = frozenset()
CHECKPOINT = "checkpoint"
RESET = "reset"
_AGAIN_MS = 500
# So long an operator of the original waits for a merged checkpoint at most.
MERGE_MAX_MS = 15_000


class OperatorState(State):
    """The states of the original's client, and those in which it ends."""

    INITIALIZED = "not registered yet"
    SUBSCRIBED = "registered, nothing delivered yet"
    RECORDS_FETCHED = "has delivered since it began or was reset"
    CR_RESET_PENDING = "delivers nothing, waits for a reset or goes back"
    RESET_COMPLETE = "at the positions of the attempt, nothing delivered since"
    CLOSED = "has left"
    FENCED = "another process has its name, or it was evicted"
    FAILED = "cannot be part of this region"


class OperatorConfig(Struct, frozen=True, kw_only=True):
    """One operator.

    Attributes:
        id: Its name, and the incarnation that no other process ever has.
        host: Where it runs.
        process: Its process, for people.
        client_id: Its client id in the group.
        settings: What it takes the region's settings to be.
        rebalance: "checkpoint": a partition that moves is handed over with a checkpoint; "reset":
            the region resets when a partition moves that has delivered.
        merge_timeout_ms: How long it may wait in a reset for the merged checkpoint until that is
            told.
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
        next: Offset behind the last record delivered.
        is_stopping: Whether it was told to stop; it is given back then, whatever comes.
        is_stopped: Whether it has.
    """

    read: int
    next: int
    is_stopping: bool = False
    is_stopped: bool = False


class OperatorSession(Struct, frozen=True, kw_only=True):
    """All that an operator knows; a value.

    Attributes:
        state: Its state.
        folded: The region as far as the log was read.
        counts: How many partitions the group's topics have, by the topic's id.
        assigned: What the group assigned to it and did not take back.
        revoking: What the group is taking back while the listener waits.
        is_holding: Whether the listener waits.
        deadline: When the listener returns at the latest.
        reading: What is read or was read.
        lost: Partitions whose loss the log has to be told.
        finding: Partitions whose start is looked for.
        found: Start positions that were found.
        attempt: The attempt that it follows; 0: none yet.
        cut: The cut that is being made, and what it releases.
        contribution: The contribution that the log has to have.
        needs_reset: Why it has to go back although the region sees no reason yet.
        merge_due: When it is told that the merged checkpoint of a reset has not come.
        ill: Why it cannot go on.
        is_closing: Whether it gives everything back and leaves.
        close_deadline: When it leaves at the latest.
        has_left: Whether it said that it leaves.
        claimed: What it claimed last, and when it may repeat that.
        claim_again: See `claimed`.
        seq: Number of the last thing it said.
        reads: Number of the last `Read`.
        token: Number of the last append.
        in_flight: Whether that append has not ended.
        read_to: How far the log has to be folded to know what became of it.
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
        """The partitions that it shall own."""
        return NONE if self.is_closing else self.assigned - self.revoking


class OperatorDecision(Struct, kw_only=True):
    """What one input does to an operator, while its handlers run."""

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
    # What is asked of the log again and again, for as long as it is the same.
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
        """What the log knows of this incarnation; None: it is not active."""
        self._look()
        return self._me

    @property
    def owned(self) -> Partitions:
        """What it owns in the log and has not lost there."""
        self._look()
        return self._owned

    @property
    def awaited(self) -> Partitions:
        """What it waits for in the log."""
        self._look()
        return self._awaited

    @property
    def is_free(self) -> bool:
        """Whether the log shows what became of everything that it said."""
        session = self.session
        if session.in_flight or session.folded is None:
            return False
        return session.folded.offset >= session.read_to

    def is_clean(self, partition: RegionPartition) -> bool:
        """Whether nothing was delivered of a partition that no complete checkpoint holds."""
        reading = self.session.reading.get(partition)
        return reading is None or reading.next == self.folded.partition(partition).base

    def says(self, *records: RegionRecord) -> None:
        """Append records; numbered ones were made with `number`."""
        token = self.session.token + 1
        self.session = replace(self.session, token=token, in_flight=True)
        self.appended = Append(token, records)

    def number(self) -> int:
        """Return the number of the next thing that it says."""
        me = self.me
        last = max(self.session.seq, 0 if me is None else me.seq)
        self.session = replace(self.session, seq=last + 1)
        return self.session.seq

    def stop(self, partitions: Partitions) -> None:
        """Stop reading those of the partitions that are read."""
        reading = self.session.reading
        for each in partitions & frozenset(reading):
            known = reading[each]
            if not known.is_stopping:
                reading = reading.set(each, replace(known, is_stopping=True))
                self.stops |= {each}
        self.session = replace(self.session, reading=reading)

    def claims(self, partitions: Partitions) -> None:
        """Remember what was claimed, so that it is not repeated at once."""
        self.session = replace(self.session, claimed=partitions, claim_again=self.now + _AGAIN_MS)

    def note(self, rule: str, text: str) -> None:
        """Observe something."""
        self.observed.append(Fact(-1, rule, text))

    def warn(self, rule: str, text: str) -> None:
        """Observe something that somebody should look at."""
        self.observed.append(Fact(-1, rule, text, is_warning=True))

    def effects(self) -> OperatorEffects:
        """Return what all of it leads to."""
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
