"""What the two machines of a region are told, and what they want done.

Both are driven in the same way. The shell puts one input after the other into `decide`, with the
time of a clock that never goes back, installs the session of the effects and carries them out in
the order in which they are declared below. It then reports what they led to by inputs.

*Appends.* At most one append of a machine is on its way. The shell sends its records as one batch,
each under a key of its own (see `encode` in `coding`), and then reports `Appended`: after a success
with the offset behind them, after any other result with the end of the log, asked for after the
failure. The machine decides nothing from the log until its fold has come that far, and never acts
on what it meant to write.

*Reads.* Each `Read` has a number. Reports about an older one of the same partition are ignored, so
whatever a thread delivers late belongs to what it was told to read.
"""

from __future__ import annotations

from typing import TypeAlias

from immutables import Map
from msgspec import Struct

from kohort.region.errors import RegionError
from kohort.region.machines.facts import Fact
from kohort.region.machines.records import OperatorId, Partitions, RegionPartition, RegionRecord
from kohort.region.machines.state import RegionState

# ------------------------------------------------------------------------------ inputs of both


class Folded(Struct, frozen=True):
    """The log was read further; only a state that the `Reader` trusts is given.

    Attributes:
        state: The region there.
        evicted: Why this operator was evicted; empty: it was not, or that is not known.
    """

    state: RegionState
    evicted: str = ""


class Appended(Struct, frozen=True):
    """An append has ended, in whichever way.

    Attributes:
        token: Its number.
        read_to: Offset up to which the log has to be folded before its result is known.
    """

    token: int
    read_to: int


class Tick(Struct, frozen=True):
    """Time has passed: the deadline of the last effects, or any other time."""


# --------------------------------------------------------------------------- inputs of operators


class Assigned(Struct, frozen=True):
    """The group assigned partitions, beside those that the operator has.

    With an eager protocol all were revoked before; with a cooperative one or KIP-848 only what is
    new is named.

    Attributes:
        partitions: Which.
        counts: How many partitions each of the group's topics has now, by the topic's id.
    """

    partitions: Partitions
    counts: Map[str, int] = Map()


class Revoked(Struct, frozen=True):
    """The group takes partitions away, and waits until `EndRevocation`.

    Attributes:
        partitions: Which.
        deadline: When the listener has to return at the latest, counted by the shell from the last
            heartbeat before the notice; None: the region's drain timeout from now on.
    """

    partitions: Partitions
    deadline: int | None = None


class PartitionsLost(Struct, frozen=True):
    """The operator was thrown out of the group: these partitions may have another owner already."""

    partitions: Partitions


class StartFound(Struct, frozen=True):
    """Where a partition starts, by the operator's start position."""

    partition: RegionPartition
    offset: int


class Delivered(Struct, frozen=True):
    """The function was given records.

    Attributes:
        partition: Of which partition.
        next_offset: Offset behind the last one.
        read: Number of the `Read` that it comes from.
    """

    partition: RegionPartition
    next_offset: int
    read: int


class Stopped(Struct, frozen=True):
    """No record of these partitions is delivered any more, and all deliveries are reported."""

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
    """Everything that was delivered before the attempt is forgotten, and nothing of it runs on."""

    attempt: int


class WentUnhealthy(Struct, frozen=True):
    """The operator cannot go on: its function raised, its disk is full."""

    why: str


class WentHealthy(Struct, frozen=True):
    """It can go on again."""


class Close(Struct, frozen=True):
    """The application wants to end in order: give everything back with a last checkpoint.

    Attributes:
        deadline: When it ends without; None: the region's drain timeout from now on.
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
    """The one-partition group of the candidates chose this one to try, or no longer does."""

    is_chosen: bool


class GroupMember(Struct, frozen=True):
    """A member of the operators' group, as DescribeGroups shows it."""

    member_id: str
    client_id: str
    host: str


class GroupDescribed(Struct, frozen=True):
    """The members of the operators' group now."""

    members: tuple[GroupMember, ...]


class PublishDone(Struct, frozen=True):
    """The output of a checkpoint is visible."""

    checkpoint: int


class PublishFailed(Struct, frozen=True):
    """It could not be made visible; it is tried again."""

    checkpoint: int
    cause: str


class Asked(Struct, frozen=True):
    """Somebody in this process wants something of the region; see `records.Ask`."""

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
        partition: Of which partition.
        offset: From where.
        state: Reference to the state of the partition there; empty: it has none.
        read: Number to report deliveries with.
    """

    partition: RegionPartition
    offset: int
    state: str
    read: int


class MakeCut(Struct, frozen=True):
    """Make a cut for a checkpoint, then go on; everything stopped before is part of it."""

    checkpoint: int
    attempt: int


class OperatorEffects(Struct, frozen=True, kw_only=True):
    """What an operator wants done, in this order.

    Attributes:
        session: What the machine knows after this (`OperatorSession` in `operator`).
        discard: Stop all reading and forget everything delivered, output and state included, for
            this attempt; report `Discarded`. None: nothing.
        stops: Stop reading these partitions, keep what was delivered; report `Stopped`.
        cut: Make a cut; report `CutMade`, or `CutFailed`.
        find_starts: Find where these partitions start; report `StartFound`.
        find_beginnings: Those of them that were added since the region began: they start at their
            beginning, whatever the start position is.
        reads: What to read.
        append: Records for the log.
        ends_revocation: Whether the listener that waits in `Revoked` returns.
        failed: The operator is over, by this error; nothing of it may go on.
        is_closed: The operator has left in order.
        deadline: When `Tick` is due; None: not by itself.
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

    It may come again for a checkpoint that is visible already: then it is done at once.

    Attributes:
        checkpoint: Which checkpoint.
        outputs: What each operator handed over.
        shown: The newest checkpoint that the output has to show before; 0: none.
    """

    checkpoint: int
    outputs: Map[OperatorId, str]
    shown: int = 0


class Trim(Struct, frozen=True):
    """Append tombstones for the keys that `Reader.removable(before)` names.

    They go as one batch, which ends with a `Trimmed` record that counts them.

    Attributes:
        token: Number to report `Appended` with.
        before: `before` of the snapshot that replaces the records.
    """

    token: int
    before: int


class ControllerEffects(Struct, frozen=True, kw_only=True):
    """What a controller wants done, in this order.

    Attributes:
        session: What the machine knows after this
            (`kohort.region.machines.controller.ControllerSession`).
        append: Records for the log.
        trim: Records of the log to remove.
        publish: Output to make visible.
        remove_from_group: Ids of members that leave the operators' group, with LeaveGroup or a
            heartbeat of epoch -1.
        deadline: When `Tick` is due; None: not by itself.
        observed: What happened, for people.
    """

    session: object
    append: Append | None = None
    trim: Trim | None = None
    publish: Publish | None = None
    remove_from_group: tuple[str, ...] = ()
    deadline: int | None = None
    observed: tuple[Fact, ...] = ()
