"""The inputs and effects of the two machines of a region.

Both are driven in the same way. The shell passes one input after the other to `decide`, with the
time of a clock that never goes back, installs the session of the effects and carries them out in
the order in which they are declared below. It then reports their results as inputs.

*Appends.* At most one append of a machine is on its way. The shell sends its records as one batch,
each with a key of its own (see `encode` in `coding`), and then reports `Appended`: after a success
with the offset after them, after any other result with the end of the log, asked for after the
failure. The machine decides nothing until its fold has come that far, and never acts on what it
meant to write.

*Reads.* Each `Read` has a number. Reports about an older one of the same partition are ignored, so
late deliveries of a thread cannot count for a newer `Read`.
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
        state: The region there.
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
    """The deadline of the last effects has come, or any other time."""


# --------------------------------------------------------------------------- inputs of operators


class Assigned(Struct, frozen=True):
    """The group assigned partitions, in addition to those that the operator has.

    With an eager protocol all were revoked before; a cooperative one and KIP-848 name only the new
    ones.

    Attributes:
        partitions: The assigned partitions.
        counts: How many partitions each of the group's topics has now, by the topic's id.
    """

    partitions: Partitions
    counts: Map[str, int] = Map()


class Revoked(Struct, frozen=True):
    """The group takes partitions away, and waits until `EndRevocation`.

    Attributes:
        partitions: The revoked partitions.
        deadline: When the listener must return at the latest, which the shell counts from the last
            heartbeat before the notice; None: the region's drain timeout from now on.
    """

    partitions: Partitions
    deadline: int | None = None


class PartitionsLost(Struct, frozen=True):
    """The group removed the operator: these partitions may have another owner already."""

    partitions: Partitions


class StartFound(Struct, frozen=True):
    """Where a partition starts, by the operator's start position."""

    partition: RegionPartition
    offset: int


class Delivered(Struct, frozen=True):
    """The function was given records.

    Attributes:
        partition: Their partition.
        next_offset: Offset after the last one.
        read: Number of the `Read` that it comes from.
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
        positions: For each partition that was read since the last cut, released ones included, the
            offset of the record that is delivered next.
        reads: For each of them the number of its `Read`.
        states: References to the states that changed since the last cut.
        output: Reference to what was written since the last cut; it is durable. Empty: nothing.
    """

    checkpoint: int
    attempt: int
    positions: Map[RegionPartition, int]
    reads: Map[RegionPartition, int]
    states: Map[RegionPartition, str] = Map()
    output: str = ""


class CutFailed(Struct, frozen=True):
    """The cut cannot be part of the checkpoint: the group did not take the offsets of a drain.

    Attributes:
        checkpoint: As in `MakeCut`.
        attempt: As in `MakeCut`.
        why: What happened.
    """

    checkpoint: int
    attempt: int
    why: str


class Discarded(Struct, frozen=True):
    """Everything delivered before the attempt is discarded, and no call for it is running."""

    attempt: int


class WentUnhealthy(Struct, frozen=True):
    """The operator cannot go on: its function raised, its disk is full."""

    why: str


class WentHealthy(Struct, frozen=True):
    """It can go on again."""


class Close(Struct, frozen=True):
    """The application wants to end in order: give everything back with a last checkpoint.

    Attributes:
        deadline: When to end without the checkpoint; None: the region's drain timeout from now on.
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
    """The one-partition group of the candidates chose this one, or chose another one."""

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
    """The output of a checkpoint is visible."""

    checkpoint: int


class PublishFailed(Struct, frozen=True):
    """The output of a checkpoint could not be made visible; to be tried again."""

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
    """Seek to an offset and read on, with this state.

    Attributes:
        partition: What to read.
        offset: Where to begin.
        state: Reference to the partition's state at that offset; empty if it has none.
        read: Number to report deliveries with.
    """

    partition: RegionPartition
    offset: int
    state: str
    read: int


class MakeCut(Struct, frozen=True):
    """Make a cut for a checkpoint, then go on; it includes partitions stopped before."""

    checkpoint: int
    attempt: int


class OperatorEffects(Struct, frozen=True, kw_only=True):
    """The effects of an operator, to carry out in this order.

    Attributes:
        session: What the machine knows afterwards (`OperatorSession` in `operator`).
        discard: Stop all reading and forget everything delivered, output and state included, for
            this attempt; report `Discarded`. None: nothing.
        stops: Stop reading these partitions, keep what was delivered; report `Stopped`.
        cut: Make a cut; report `CutMade`, or `CutFailed`.
        find_starts: Find where these partitions start; report `StartFound`.
        find_beginnings: Those of them that were added since the region began: they start at their
            beginning, independent of the start position.
        reads: What to read.
        append: Records for the log.
        ends_revocation: Whether the listener that waits in `Revoked` returns.
        failed: The operator has failed with this error, and must stop all work.
        is_closed: The operator has left in order.
        deadline: When `Tick` is due; None: never.
        observed: What happened, for people.
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
    """Make the output of a checkpoint visible, atomically and in order of the checkpoints.

    It may be repeated for a checkpoint that is visible already, and then changes nothing.

    Attributes:
        checkpoint: The checkpoint.
        outputs: Each operator's reference to its output.
        shown: The newest checkpoint that the output must show before; 0: none.
    """

    checkpoint: int
    outputs: Map[OperatorId, str]
    shown: int = 0


class Trim(Struct, frozen=True):
    """Append tombstones for the keys that `Reader.removable(before)` names.

    They are one batch, which ends with a `Trimmed` record that counts them.

    Attributes:
        token: Number to report `Appended` with.
        before: `before` of the snapshot that replaces the records.
    """

    token: int
    before: int


class ControllerEffects(Struct, frozen=True, kw_only=True):
    """The effects of a controller, to carry out in this order.

    Attributes:
        session: What the machine knows afterwards
            (`kohort.region.machines.controller.ControllerSession`).
        append: Records for the log.
        trim: Records of the log to remove.
        publish: Output to make visible.
        remove_from_group: Ids of members that leave the operators' group, with LeaveGroup or a
            heartbeat of epoch -1.
        deadline: When `Tick` is due; None: never.
        observed: What happened, for people.
    """

    session: object
    append: Append | None = None
    trim: Trim | None = None
    publish: Publish | None = None
    remove_from_group: tuple[str, ...] = ()
    deadline: int | None = None
    observed: tuple[Fact, ...] = ()
