"""The state of a small region: processes, the log, the group and the sink, as values."""

from __future__ import annotations

from typing import TypeAlias

from immutables import Map
from msgspec import Struct

from kohort.region.machines.controller_session import ControllerSession
from kohort.region.machines.events import Append, MakeCut, OperatorInput, Publish, Read
from kohort.region.machines.operator_session import OperatorSession
from kohort.region.machines.records import Partitions, RegionPartition, RegionRecord
from kohort.region.machines.state import RegionState

NONE: Partitions = frozenset()


class Discard(Struct, frozen=True):
    """The work forgets everything, for an attempt."""

    attempt: int


class Stop(Struct, frozen=True):
    """The work stops reading partitions."""

    partitions: Partitions


Command: TypeAlias = Read | Stop | Discard | MakeCut


class Lane(Struct, frozen=True):
    """A partition that a process reads.

    Attributes:
        read: Number of the `Read`.
        position: Offset of the next record.
        saved: Offset at which its state was stored last.
        runs: Whether it goes on.
    """

    read: int
    position: int
    saved: int
    runs: bool = True


class Piece(Struct, frozen=True, order=True):
    """Output: the records of a partition from one offset to another."""

    partition: RegionPartition
    first: int
    end: int


class Told(Struct, frozen=True):
    """A message of the group to a member: `assign`, `revoke` or `lost`."""

    what: str
    partitions: Partitions


class Process(Struct, frozen=True, kw_only=True):
    """An operator with its candidate for the controller, its work, and its place in the group.

    Attributes:
        number: Number of the process.
        life: How often it was started.
        is_alive: Whether it runs.
        operator: The session of its operator.
        controller: The session of its candidate.
        said: The operator's append in flight.
        decided: The candidate's append in flight.
        publish: The checkpoint that the candidate makes visible.
        lanes: The partitions that are read, or were since the last cut.
        pieces: Output since the last cut.
        commands: Commands that the work has not done yet.
        reports: Reports of the work that the operator has not processed yet.
        told: Messages of the group that the operator has not processed yet.
        is_member: Whether it is in the group.
        owned: Its partitions according to the group.
        revoking: The partitions that the group is revoking.
    """

    number: int
    life: int = 0
    is_alive: bool = False
    operator: OperatorSession = OperatorSession()
    controller: ControllerSession = ControllerSession()
    said: Append | None = None
    decided: Append | None = None
    publish: Publish | None = None
    lanes: Map[RegionPartition, Lane] = Map()
    pieces: tuple[Piece, ...] = ()
    commands: tuple[Command, ...] = ()
    reports: tuple[OperatorInput, ...] = ()
    told: tuple[Told, ...] = ()
    is_member: bool = False
    owned: Partitions = NONE
    revoking: Partitions = NONE

    @property
    def folded_to(self) -> int:
        """How far it has folded the log."""
        folded = self.operator.folded
        return -1 if folded is None else folded.offset


class State(Struct, frozen=True, kw_only=True):
    """The complete state.

    Attributes:
        processes: The processes.
        log: The fold after each record, from the one on at which the slowest process is.
        late: Batches whose sender has given them up, or is dead, and that may still arrive.
        visible: Of each partition the offset up to which its output is visible.
        shown: The last checkpoint that is visible.
        is_swapped: How the group shares the partitions out.
        ends: End of each partition.
        left: How many perturbations are left.
        is_rough: Whether a perturbation happened after which a region may repeat work.
        wrong: The rule that was broken.
    """

    processes: tuple[Process, ...]
    log: tuple[RegionState, ...] = (RegionState(),)
    late: tuple[tuple[RegionRecord, ...], ...] = ()
    visible: Map[RegionPartition, int] = Map()
    shown: int = 0
    is_swapped: bool = False
    ends: Map[RegionPartition, int] = Map()
    left: int = 0
    is_rough: bool = False
    wrong: str = ""

    @property
    def head(self) -> RegionState:
        """The fold of the whole log."""
        return self.log[-1]
