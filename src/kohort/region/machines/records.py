"""The records of a region's control topic, as values; `coding` has their encoding.

Every record except `Ask` and `RegionSettled` names its writer. An operator numbers its records
(`seq`), so late and repeated records have no effect. Decisions carry the controller's epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from immutables import Map
from msgspec import Struct

from kohort.values import replace


class RegionPartition(NamedTuple):
    """A partition of one incarnation of a topic; a recreated topic has different partitions.

    Attributes:
        topic: Name of the topic.
        topic_id: Its id, as text.
        partition: Number of the partition.
    """

    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OperatorId(NamedTuple):
    """One process of an operator; each start of a process is a new incarnation.

    Attributes:
        name: Name of the operator.
        incarnation: Id of the process, different at each start.
    """

    name: str
    incarnation: str

    def __str__(self) -> str:
        return f"{self.name}/{self.incarnation[:8]}"


Partitions: TypeAlias = frozenset[RegionPartition]
_NOTHING: Partitions = frozenset()

PERIODIC = "periodic"
OPERATOR_DRIVEN = "operator-driven"

DRAIN = "drain"
RESET = "reset"
STOP = "stop"


class RegionSettings(Struct, frozen=True, kw_only=True):
    """The settings shared by all processes of a region.

    Attributes:
        group_id: The consumer group of the operators.
        mode: "periodic": a drain each period; "operator-driven": only on request.
        period_ms: Milliseconds from the end of a drain or reset to the next drain.
        drain_timeout_ms: Milliseconds after which an incomplete drain becomes a reset.
        reset_timeout_ms: Milliseconds after which operators that have not finished a reset are
            evicted.
        max_resets: Number of consecutive resets without a checkpoint after which only a forced one
            continues.
        sink: The id of the output, then a space and its location as seen by the first process;
            empty: unknown. Added in format 3.
    """

    group_id: str
    mode: str = PERIODIC
    period_ms: int = 5_000
    drain_timeout_ms: int = 10_000
    reset_timeout_ms: int = 30_000
    max_resets: int = 10
    sink: str = ""

    def fits(self, other: RegionSettings) -> bool:
        """Return whether both may belong to one region; an output may have several names."""
        mine, theirs = self.sink.partition(" ")[0], other.sink.partition(" ")[0]
        if mine and theirs and mine != theirs:
            return False
        return replace(self, sink="") == replace(other, sink="")


class RegionSettled(Struct, frozen=True):
    """The region exists, with these settings; the first record of the log counts."""

    writer: str
    settings: RegionSettings


# ------------------------------------------------------------------------------ records of
# operators


class Registered(Struct, frozen=True):
    """An operator registers, and fences the earlier incarnation of its name.

    Attributes:
        operator: The writer.
        after: The offset up to which it had read the log. The record counts only if the name (or
            any incarnation unknown to the fold) has not changed since: a late copy must not revive
            a dead incarnation.
        host: Where it runs.
        process: Its process, for display.
        client_id: Its client id in the group, by which the controller finds its member.
    """

    operator: OperatorId
    after: int
    host: str
    process: str
    client_id: str


class Left(Struct, frozen=True):
    """An operator has left permanently."""

    operator: OperatorId
    seq: int


class Claim(Struct, frozen=True):
    """The group assigned these partitions to the operator.

    Attributes:
        operator: The writer.
        seq: Number of the record.
        partitions: The partitions.
        counts: Number of partitions of each of the group's topics, by topic id. The first counts in
            the log are those of the region's beginning; added in format 2.
    """

    operator: OperatorId
    seq: int
    partitions: Partitions
    counts: Mapping[str, int] = Map()


class Unclaim(Struct, frozen=True):
    """The operator gives back partitions; complete checkpoints contain all their deliveries."""

    operator: OperatorId
    seq: int
    partitions: Partitions


class Lost(Struct, frozen=True):
    """The operator lost partitions after it had delivered from them."""

    operator: OperatorId
    seq: int
    partitions: Partitions


class Leaving(Struct, frozen=True):
    """The operator stopped reading partitions, and releases them with its next contribution."""

    operator: OperatorId
    seq: int
    partitions: Partitions


class Start(Struct, frozen=True):
    """The offset at which a partition starts for the region; the first record in the log counts."""

    operator: OperatorId
    seq: int
    partition: RegionPartition
    offset: int


class Contribution(Struct, frozen=True):
    """The operator's part of a checkpoint.

    Attributes:
        operator: The writer.
        seq: Number of the record.
        checkpoint: The checkpoint.
        attempt: The attempt.
        offsets: For each partition, the offset of the next record to deliver.
        states: References to the state of partitions whose state changed.
        released: Partitions of `offsets` that the operator gives up with this checkpoint.
        output: Reference to its output since its last contribution; empty: none.
    """

    operator: OperatorId
    seq: int
    checkpoint: int
    attempt: int
    offsets: Mapping[RegionPartition, int] = Map()
    states: Mapping[RegionPartition, str] = Map()
    released: Partitions = _NOTHING
    output: str = ""


class ResetDone(Struct, frozen=True):
    """The operator has discarded its work, and is at the positions of this attempt."""

    operator: OperatorId
    seq: int
    attempt: int


class Unhealthy(Struct, frozen=True):
    """The operator cannot continue."""

    operator: OperatorId
    seq: int
    why: str


class Healthy(Struct, frozen=True):
    """The operator can continue again, after a reset."""

    operator: OperatorId
    seq: int


# ------------------------------------------------------------------------------ records of anyone


class Ask(Struct, frozen=True):
    """A request for a checkpoint, a reset or a stop.

    Attributes:
        writer: The requester, for display.
        what: `DRAIN`, `RESET` or `STOP`.
        checkpoint: The next checkpoint as known to the writer; a drain that has happened meanwhile
            is not repeated.
        attempt: The attempt as known to the writer; likewise for a reset.
        force: Whether a reset starts a new budget.
        why: The reason.
    """

    writer: str
    what: str
    checkpoint: int
    attempt: int
    force: bool = False
    why: str = ""


# ------------------------------------------------------------------------ records of the controller


class Controller(Struct, frozen=True):
    """A candidate becomes the controller, if the epoch is the current one + 1."""

    epoch: int
    incarnation: str


class Drain(Struct, frozen=True):
    """A checkpoint of this attempt begins."""

    epoch: int
    incarnation: str
    checkpoint: int
    attempt: int


class Complete(Struct, frozen=True):
    """A checkpoint is complete."""

    epoch: int
    incarnation: str
    checkpoint: int
    attempt: int


class Published(Struct, frozen=True):
    """The output of a complete checkpoint is visible.

    Attributes:
        epoch: Epoch of the controller.
        incarnation: The controller.
        checkpoint: The checkpoint.
        has_output: Whether it has output, so that the sink shows it; added in format 2.
    """

    epoch: int
    incarnation: str
    checkpoint: int
    has_output: bool = False


class Reset(Struct, frozen=True):
    """An attempt begins at the last complete checkpoint."""

    epoch: int
    incarnation: str
    attempt: int
    forced: bool
    why: str


class Evict(Struct, frozen=True):
    """The controller ends an incarnation."""

    epoch: int
    incarnation: str
    operator: OperatorId
    why: str


class Exhausted(Struct, frozen=True):
    """There were too many consecutive resets."""

    epoch: int
    incarnation: str
    attempt: int
    why: str


class Snapshot(Struct, frozen=True):
    """The fold of everything before an offset.

    Attributes:
        epoch: Epoch of the controller.
        incarnation: The controller.
        before: The offset.
        state: The fold, as text of `kohort.region.machines.snapshot`.
        digest: Its digest.
    """

    epoch: int
    incarnation: str
    before: int
    state: str
    digest: str


class Trimmed(Struct, frozen=True):
    """The number of tombstones right before this record, in the same batch.

    Compaction also removes tombstones. With this record, a reader can tell such a gap from missing
    records.
    """

    epoch: int
    incarnation: str
    count: int


OperatorRecord: TypeAlias = (
    Left | Claim | Unclaim | Lost | Leaving | Start | Contribution | ResetDone | Unhealthy | Healthy
)
Decision: TypeAlias = Drain | Complete | Published | Reset | Evict | Exhausted | Snapshot | Trimmed
RegionRecord: TypeAlias = RegionSettled | Registered | OperatorRecord | Ask | Controller | Decision

KINDS: Mapping[str, type[RegionRecord]] = {
    "region": RegionSettled,
    "registered": Registered,
    "left": Left,
    "claim": Claim,
    "unclaim": Unclaim,
    "lost": Lost,
    "leaving": Leaving,
    "start": Start,
    "contribution": Contribution,
    "reset-done": ResetDone,
    "unhealthy": Unhealthy,
    "healthy": Healthy,
    "ask": Ask,
    "controller": Controller,
    "drain": Drain,
    "complete": Complete,
    "published": Published,
    "reset": Reset,
    "evict": Evict,
    "exhausted": Exhausted,
    "snapshot": Snapshot,
    "trimmed": Trimmed,
}
"""The types of records, by the first word of their keys."""

NAMES: Mapping[type[RegionRecord], str] = {kind: name for name, kind in KINDS.items()}


def writer_of(record: RegionRecord) -> str:
    """Return the writer of a record, as it appears in the key."""
    match record:
        case RegionSettled() | Ask():
            return record.writer
        case (
            Controller()
            | Drain()
            | Complete()
            | Published()
            | Reset()
            | Evict()
            | Exhausted()
            | Snapshot()
            | Trimmed()
        ):
            return f"{record.epoch}.{record.incarnation}"
        case _:
            return f"{record.operator.name}.{record.operator.incarnation}"
