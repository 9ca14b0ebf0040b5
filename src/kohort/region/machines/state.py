"""The state of a region at one offset of its log; immutable values."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from immutables import Map
from msgspec import Struct

from kohort.region.machines.records import (
    Contribution,
    OperatorId,
    Partitions,
    RegionPartition,
    RegionSettings,
)

_NONE: Partitions = frozenset()


class Phase(Enum):
    """The phase of a region."""

    __hash__ = object.__hash__  # `Enum.__hash__` is written in Python, and slow

    STARTED = "no operator is running"
    PROCESSING = "operators read and process"
    DRAINING = "a checkpoint waits for contributions"
    CHECKPOINT_PENDING = "a checkpoint is complete and not yet published"
    RESETTING = "operators return to the last complete checkpoint"
    UNHEALTHY = "an operator cannot continue"
    MAXIMUM_RESET_ATTEMPTS_REACHED = "too many resets in a row; only a forced reset is allowed"


class Operator(Struct, frozen=True, kw_only=True):
    """An active incarnation.

    Attributes:
        id: Its name and incarnation.
        host: Where it runs.
        process: Its process, for display.
        client_id: Its client id in the group.
        registered_at: Offset of its registration.
        seq: Number of its last record.
        attempt: The attempt whose positions it has reached.
        unhealthy: Why it cannot continue; empty if it can.
        owned: The partitions that it owns.
    """

    id: OperatorId
    host: str
    process: str
    client_id: str
    registered_at: int
    seq: int = 0
    attempt: int = 0
    unhealthy: str = ""
    owned: Partitions = _NONE


class Partition(Struct, frozen=True, kw_only=True):
    """A partition that has been claimed at some time.

    Attributes:
        owner: The operator whose records about it count; None: it has no owner.
        waiting: The operator that gets it with the next reset, because it has an owner now.
        lost: Whether the owner wrote that it lost it.
        leaving: Whether the owner releases it with its next contribution.
        start: The offset at which it starts for the region; None: not known yet.
        position: Its offset in the last complete checkpoint; None: in none yet.
        state: Reference to its state in that checkpoint; empty if it has none.
    """

    owner: OperatorId | None = None
    waiting: OperatorId | None = None
    lost: bool = False
    leaving: bool = False
    start: int | None = None
    position: int | None = None
    state: str = ""

    @property
    def base(self) -> int | None:
        """The offset to read from after a grant or a reset; None: not known yet."""
        return self.start if self.position is None else self.position


class OpenDrain(Struct, frozen=True):
    """A checkpoint that waits for contributions.

    Attributes:
        checkpoint: Its number.
        participants: The operators that must contribute, and the partitions that each must cover
            while it owns them: those it owned at the drain and whose position was known.
        contributions: The contributions so far, by operator.
    """

    checkpoint: int
    participants: Map[OperatorId, Partitions]
    contributions: Map[OperatorId, Contribution] = Map()

    @property
    def missing(self) -> list[OperatorId]:
        """The participants that have not contributed yet."""
        return sorted(each for each in self.participants if each not in self.contributions)


class Checkpoint(Struct, frozen=True):
    """A complete checkpoint that is not published yet.

    Attributes:
        checkpoint: Its number.
        attempt: The attempt in which it became complete.
        outputs: References to the output of each operator, without empty ones.
    """

    checkpoint: int
    attempt: int
    outputs: Map[OperatorId, str]


class Fact(Struct, frozen=True):
    """Something observed while a log was folded or a machine decided, for logs and metrics.

    Attributes:
        offset: Offset of the record; -1 outside of the log.
        rule: Its name; for a refusal, the rule that the record broke.
        text: One sentence for display.
        is_refused: Whether a record was ignored because of it.
        is_usual: Whether a healthy region sometimes refuses such records.
        is_warning: Whether it needs attention: work was lost and must be repeated.
    """

    offset: int
    rule: str
    text: str
    is_refused: bool = False
    is_usual: bool = False
    is_warning: bool = False


class RegionState(Struct, frozen=True, kw_only=True):
    """The fold of a log up to an offset.

    Attributes:
        offset: The offset up to which the log is folded.
        settings: The shared settings; None: no region yet.
        operators: The active incarnations, by name.
        partitions: The partitions that were ever claimed or have a start position.
        buried_at: Offset of the last record that ended an incarnation; -1: none.
        attempt: The current attempt; it never decreases.
        checkpoint: Number of the last drain: complete, burnt or open.
        completed: Number of the last complete checkpoint.
        drain: The open drain.
        unpublished: Complete checkpoints that are not yet published, oldest first.
        must_reset: Why the region must reset; empty if it need not.
        forced: Whether that reset starts a new budget.
        resets: Consecutive resets without a complete checkpoint.
        exhausted: Why the region gave up; empty if it did not.
        asked_drain: Why a checkpoint was requested; empty if none was.
        stopping: Whether operators should leave with the next checkpoint.
        epoch: Epoch of the controller; 0: there was none yet.
        controller: The controller's incarnation.
        snapshot_before: `before` of the newest snapshot; 0: there is none.
        shown: The newest published checkpoint with output; 0: none known.
        began: Number of partitions of each topic when the region began, by topic id; empty:
            unknown.
    """

    offset: int = 0
    settings: RegionSettings | None = None
    operators: Map[str, Operator] = Map()
    partitions: Map[RegionPartition, Partition] = Map()
    buried_at: int = -1
    attempt: int = 1
    checkpoint: int = 0
    completed: int = 0
    drain: OpenDrain | None = None
    unpublished: tuple[Checkpoint, ...] = ()
    must_reset: str = ""
    forced: bool = False
    resets: int = 0
    exhausted: str = ""
    asked_drain: str = ""
    stopping: bool = False
    epoch: int = 0
    controller: str = ""
    snapshot_before: int = 0
    shown: int = 0
    began: Map[str, int] = Map()

    @property
    def phase(self) -> Phase:
        """The phase."""
        if self.exhausted:
            return Phase.MAXIMUM_RESET_ATTEMPTS_REACHED
        if not self.operators:
            return Phase.STARTED
        if any(each.unhealthy for each in self.operators.values()):
            return Phase.UNHEALTHY
        if next(self.awaited(), None) is not None:
            return Phase.RESETTING
        if self.drain is not None:
            return Phase.DRAINING
        return Phase.CHECKPOINT_PENDING if self.unpublished else Phase.PROCESSING

    def is_unpublished(self, checkpoint: int) -> bool:
        """Whether a complete checkpoint, or one before it, is not visible yet."""
        return any(each.checkpoint <= checkpoint for each in self.unpublished)

    @property
    def controller_name(self) -> str:
        """The active controller as `operator/incarnation`, or only its incarnation."""
        for each in self.operators.values():
            if each.id.incarnation == self.controller:
                return str(each.id)
        return self.controller[:8]

    def awaited(self) -> Iterator[Operator]:
        """Yield the owners of partitions that have not reached the positions of this attempt."""
        for each in self.operators.values():
            if each.owned and each.attempt < self.attempt:
                yield each

    def active(self, operator: OperatorId | None) -> Operator | None:
        """Return an operator, if exactly this incarnation is active."""
        found = None if operator is None else self.operators.get(operator.name)
        return found if found is not None and found.id == operator else None

    def partition(self, partition: RegionPartition) -> Partition:
        """Return the known state of a partition."""
        return self.partitions.get(partition, _UNKNOWN)

    def is_added(self, partition: RegionPartition) -> bool:
        """Return whether a partition was added after the region began."""
        return bool(self.began) and partition.partition >= self.began.get(partition.topic_id, 0)

    @property
    def max_resets(self) -> int:
        """Maximum number of consecutive resets that are not forced."""
        return (self.settings or _USUAL).max_resets


_UNKNOWN = Partition()
_USUAL = RegionSettings(group_id="")
