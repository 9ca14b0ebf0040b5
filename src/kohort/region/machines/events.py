"""The inputs and effects of a region's two state machines.

Both are driven in the same way. The shell passes each input to `decide`, with the time of a
monotonic clock, installs the session of the effects, and carries them out in the order in which
they are declared below. It then reports their results as inputs.

*Appends.* A machine has at most one append in flight. The shell sends its records as one batch,
each with a unique key (see `encode` in `coding`), and then reports `Appended`: after a success with
the offset after them, after any other result with the end of the log, requested after the failure.
The machine decides nothing until its fold has reached that offset, and never acts on records whose
result it does not know.

*Reads.* Each `Read` has a number. Reports about an older `Read` of the same partition are ignored,
so late deliveries of a thread cannot count for a newer one.
"""

from __future__ import annotations

from typing import TypeAlias

from immutables import Map
from msgspec import Struct

from kohort.region.errors import RegionError
from kohort.region.machines.records import OperatorId, Partitions, RegionPartition, RegionRecord
from kohort.region.machines.state import Fact, RegionState

# ------------------------------------------------------------------------------ inputs of both


class Folded(Struct, frozen=True):
    """The log was read further; the state is one that the `Reader` trusts.

    Attributes:
        state: The region at that offset.
        evicted: Why this operator was evicted; empty if it was not, or the reason is unknown.
    """

    state: RegionState
    evicted: str = ""


class Appended(Struct, frozen=True):
    """An append has ended, with any result.

    Attributes:
        token: Its number.
        read_to: Offset up to which the log must be folded to know the result.
    """

    token: int
    read_to: int


class Tick(Struct, frozen=True):
    """The deadline of the last effects has been reached, or any other time."""


# --------------------------------------------------------------------------- inputs of operators


class Assigned(Struct, frozen=True):
    """The group assigned partitions, in addition to those that the operator has.

    With an eager protocol, all were revoked before; a cooperative protocol and KIP-848 list only
    the new ones.

    Attributes:
        partitions: The assigned partitions.
        counts: Current number of partitions of each of the group's topics, by topic id.
    """

    partitions: Partitions
    counts: Map[str, int] = Map()


class Revoked(Struct, frozen=True):
    """The group revokes partitions, and waits until `EndRevocation`.

    Attributes:
        partitions: The revoked partitions.
        deadline: When the listener must return at the latest, counted by the shell from the last
            heartbeat before the notice; None: the region's drain timeout from now.
    """

    partitions: Partitions
    deadline: int | None = None


class PartitionsLost(Struct, frozen=True):
    """The group removed the operator: these partitions may have another owner already."""

    partitions: Partitions


class StartFound(Struct, frozen=True):
    """A partition's start, found by the operator's start position."""

    partition: RegionPartition
    offset: int


class Delivered(Struct, frozen=True):
    """Records were passed to the function.

    Attributes:
        partition: Their partition.
        next_offset: Offset after the last one.
        read: Number of the `Read` that they came from.
    """

    partition: RegionPartition
    next_offset: int
    read: int


class Stopped(Struct, frozen=True):
    """Delivery of these partitions has stopped, and all deliveries are reported."""

    partitions: Partitions


class CutMade(Struct, frozen=True):
    """The operator's cut: everything delivered before it, and nothing after it.

    Attributes:
        checkpoint: As in `MakeCut`.
        attempt: As in `MakeCut`.
        positions: For each partition read since the last cut, released ones included, the offset of
            the next record to deliver.
        reads: The number of each one's `Read`.
        states: References to the states that changed since the last cut.
        output: Reference to the durable output since the last cut; empty: none.
    """

    checkpoint: int
    attempt: int
    positions: Map[RegionPartition, int]
    reads: Map[RegionPartition, int]
    states: Map[RegionPartition, str] = Map()
    output: str = ""


class CutFailed(Struct, frozen=True):
    """The cut cannot be part of the checkpoint: the group did not accept a drain's offsets.

    Attributes:
        checkpoint: As in `MakeCut`.
        attempt: As in `MakeCut`.
        why: The reason.
    """

    checkpoint: int
    attempt: int
    why: str


class Discarded(Struct, frozen=True):
    """Everything delivered before the attempt is discarded, and no call for it is running."""

    attempt: int


class WentUnhealthy(Struct, frozen=True):
    """The operator cannot continue: its function raised an exception, or its disk is full."""

    why: str


class WentHealthy(Struct, frozen=True):
    """The operator can continue again."""


class Close(Struct, frozen=True):
    """The application wants to stop cleanly: give everything back with a last checkpoint.

    Attributes:
        deadline: When to stop without the checkpoint; None: the region's drain timeout from now.
    """

    deadline: int | None = None


OperatorInput: TypeAlias = (
    Folded
    | Appended
    | Tick
    | Assigned
    | Revoked
    | PartitionsLost
    | StartFound
    | Delivered
    | Stopped
    | CutMade
    | CutFailed
    | Discarded
    | WentUnhealthy
    | WentHealthy
    | Close
)

# --------------------------------------------------------------------------- inputs of controllers


class Chosen(Struct, frozen=True):
    """The candidates' one-partition group chose this candidate, or chose another one."""

    is_chosen: bool


class GroupMember(Struct, frozen=True):
    """A member of the operators' group, as in the answer to DescribeGroups."""

    member_id: str
    client_id: str
    host: str


class GroupDescribed(Struct, frozen=True):
    """The current members of the operators' group."""

    members: tuple[GroupMember, ...]


class PublishDone(Struct, frozen=True):
    """The output of a checkpoint was published."""

    checkpoint: int


class PublishFailed(Struct, frozen=True):
    """The output of a checkpoint could not be published; retry."""

    checkpoint: int
    cause: str


class Asked(Struct, frozen=True):
    """This process makes a request to the region; see `records.Ask`."""

    what: str
    force: bool = False
    why: str = ""


ControllerInput: TypeAlias = (
    Folded | Appended | Tick | Chosen | GroupDescribed | PublishDone | PublishFailed | Asked
)

# ---------------------------------------------------------------------------------------- effects


class Append(Struct, frozen=True):
    """Append records as one batch.

    Attributes:
        token: Number to report `Appended` with.
        records: The records, in order.
    """

    token: int
    records: tuple[RegionRecord, ...]


class Read(Struct, frozen=True):
    """Seek to an offset and continue reading, with this state.

    Attributes:
        partition: The partition to read.
        offset: The first offset to read.
        state: Reference to the partition's state at that offset; empty if it has none.
        read: Number to report deliveries with.
    """

    partition: RegionPartition
    offset: int
    state: str
    read: int


class MakeCut(Struct, frozen=True):
    """Make a cut for a checkpoint, then continue; it includes partitions stopped before."""

    checkpoint: int
    attempt: int


class OperatorEffects(Struct, frozen=True, kw_only=True):
    """The effects of an operator, to be carried out in this order.

    Attributes:
        session: The new session (`OperatorSession` in `operator`).
        discard: Stop all reading and discard everything delivered, including output and state, for
            this attempt; report `Discarded`. None: nothing.
        stops: Stop reading these partitions, but keep their deliveries; report `Stopped`.
        cut: Make a cut; report `CutMade`, or `CutFailed`.
        find_starts: Find where these partitions start; report `StartFound`.
        find_beginnings: Those of them that were added since the region began: they start at their
            beginning, regardless of the start position.
        reads: Partitions to read.
        append: Records for the log.
        ends_revocation: Whether the listener that waits in `Revoked` returns.
        failed: The operator has failed with this error, and must stop all work.
        is_closed: The operator has left cleanly.
        deadline: When `Tick` is due; None: never.
        observed: Facts for display.
    """

    session: object
    discard: int | None = None
    stops: Partitions = frozenset()
    cut: MakeCut | None = None
    find_starts: Partitions = frozenset()
    find_beginnings: Partitions = frozenset()
    reads: tuple[Read, ...] = ()
    append: Append | None = None
    ends_revocation: bool = False
    failed: RegionError | None = None
    is_closed: bool = False
    deadline: int | None = None
    observed: tuple[Fact, ...] = ()


class Publish(Struct, frozen=True):
    """Publish the output of a checkpoint, atomically and in the order of the checkpoints.

    It may be repeated for a published checkpoint, and then changes nothing.

    Attributes:
        checkpoint: The checkpoint.
        outputs: Each operator's reference to its output.
        shown: The newest checkpoint that the output must already show; 0: none.
    """

    checkpoint: int
    outputs: Map[OperatorId, str]
    shown: int = 0


class Trim(Struct, frozen=True):
    """Append tombstones for the keys returned by `Reader.removable(before)`.

    They are one batch, which ends with a `Trimmed` record that contains their number.

    Attributes:
        token: Number to report `Appended` with.
        before: `before` of the snapshot that replaces the records.
    """

    token: int
    before: int


class ControllerEffects(Struct, frozen=True, kw_only=True):
    """The effects of a controller, to be carried out in this order.

    Attributes:
        session: The new session (`kohort.region.machines.controller.ControllerSession`).
        append: Records for the log.
        trim: Records of the log to remove.
        publish: Output to publish.
        remove_from_group: Ids of members to remove from the operators' group, with LeaveGroup or a
            heartbeat of epoch -1.
        deadline: When `Tick` is due; None: never.
        observed: Facts for display.
    """

    session: object
    append: Append | None = None
    trim: Trim | None = None
    publish: Publish | None = None
    remove_from_group: tuple[str, ...] = ()
    deadline: int | None = None
    observed: tuple[Fact, ...] = ()
