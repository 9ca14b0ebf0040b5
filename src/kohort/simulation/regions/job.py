"""The work of a simulated operator: it reads partitions, and writes its output."""

from __future__ import annotations

from immutables import Map
from msgspec import Struct

from kohort.region.machines.events import (
    CutFailed,
    CutMade,
    Delivered,
    Discarded,
    MakeCut,
    Read,
    StartFound,
    Stopped,
)
from kohort.region.machines.operator_session import RESET
from kohort.region.machines.records import Partitions, RegionPartition
from kohort.simulation.engine import Stream
from kohort.simulation.regions.base import BaseNode
from kohort.simulation.regions.parts import Piece, advanced

# Share of the drains whose offsets the group refuses.
_REFUSED = 0.02


class Lane(Struct):
    """A partition that is read.

    Attributes:
        read: Number of the `Read`.
        position: Offset of the next record.
        state: State of the function.
        runs: Whether it continues.
        saved: Offset up to which the last cut contains it.
    """

    read: int
    position: int
    state: int
    runs: bool = True
    saved: int = -1


class Job:
    """The part of an operator that runs beside its machine."""

    def __init__(self, node: BaseNode) -> None:
        self.node = node
        self.world = node.world
        self.chance = Stream(self.world.scenario.seed, "job", node.name_of_life)
        self._commits = Stream(self.world.scenario.seed, "commits", node.name_of_life)
        self.lanes: dict[RegionPartition, Lane] = {}
        self.pieces: list[Piece] = []
        self.is_ill = False
        self.is_slow = 1
        self.written = 0
        self._reported_until = 0
        self._busy_until = 0
        self._preparing: dict[RegionPartition, int] = {}
        self._work_later()

    def _after(self, low: int, high: int, action: object, *arguments: object) -> None:
        delay = self.chance.between(low, high)
        self.world.engine.after(delay, self.node, action, *arguments)  # type: ignore[arg-type]  # an action is called with its arguments

    def _work_later(self) -> None:
        self._after(80 * self.is_slow, 300 * self.is_slow, self._work)

    def _work(self) -> None:
        """Pass each partition's next records to the function."""
        for partition, lane in self.lanes.items():
            end = self.world.source.ends[partition]
            count = min(end - lane.position, self.chance.between(0, 12))
            if lane.runs and count > 0 and not self.is_ill:
                self._process(partition, lane, count)
        self._work_later()

    def _process(self, partition: RegionPartition, lane: Lane, count: int) -> None:
        end = lane.position + count
        after = advanced(lane.state, partition, lane.position, end)
        self.pieces.append(Piece(partition, lane.position, end, lane.state, after))
        lane.position, lane.state = end, after
        self._report(Delivered(partition, end, lane.read), 0, 20)

    def _report(self, event: object, low: int, high: int) -> None:
        """Report events to the machine, in the order in which they happened."""
        due = self.world.engine.now + self.chance.between(low, high)
        self._reported_until = max(self._reported_until, due)
        self.world.engine.at(self._reported_until, self.node, self.node.tell_operator, event)

    def _command(self, low: int, high: int, action: object, *arguments: object) -> None:
        """Schedule an action, after the earlier ones."""
        due = self.world.engine.now + self.chance.between(low, high)
        self._busy_until = max(self._busy_until, due)
        self.world.engine.at(self._busy_until, self.node, action, *arguments)  # type: ignore[arg-type]  # an action is called with its arguments

    # ---------------------------------------------------------------- commands of the machine

    def discard(self, attempt: int) -> None:
        """Discard all work that is not in a complete checkpoint."""
        self._preparing.clear()
        self._command(0, 60 * self.is_slow, self._discard, attempt)

    def _discard(self, attempt: int) -> None:
        self.lanes.clear()
        self.pieces.clear()
        self._report(Discarded(attempt), 0, 20)

    def read(self, wanted: Read) -> None:
        """Read from the offset in the log, with the state there."""
        partition, offset, state = wanted.partition, wanted.offset, 0
        if wanted.state:
            of, at, state = self.world.sink.states[wanted.state]
            if (of, at) != (partition, offset):
                self.world.fail("R7", f"state of {of} at {at} for {partition} at {offset}")
        self.world.checkers.check_read(partition, offset, state)
        self._preparing[partition] = wanted.read
        self._command(0, 20, self._load, wanted, state)

    def _load(self, wanted: Read, state: int) -> None:
        if self._preparing.get(wanted.partition) == wanted.read:
            del self._preparing[wanted.partition]
            self.lanes[wanted.partition] = Lane(
                wanted.read, wanted.offset, state, saved=wanted.offset
            )

    def stop(self, partitions: Partitions) -> None:
        """Stop after the records in process."""
        for each in partitions:
            self._preparing.pop(each, None)
        self._command(0, 80 * self.is_slow, self._stop, partitions)

    def _stop(self, partitions: Partitions) -> None:
        for each in partitions & self.lanes.keys():
            self.lanes[each].runs = False
        self._report(Stopped(partitions), 0, 10)

    def find_start(self, partition: RegionPartition, is_added: bool) -> None:
        """Find where a partition starts; one that was added starts at its beginning."""
        ends = self.world.source.ends
        latest = self.world.scenario.latest and not is_added
        start = ends[partition] if latest else 0
        self._report(StartFound(partition, start), 1, 50)

    def make_cut(self, wanted: MakeCut) -> None:
        """Make a cut between two batches."""
        self._command(0, 150 * self.is_slow, self._cut, wanted)

    def _cut(self, wanted: MakeCut) -> None:
        self.written += 1
        name = f"{self.node.name_of_life}-{self.written}"
        positions = Map({each: lane.position for each, lane in self.lanes.items()})
        reads = Map({each: lane.read for each, lane in self.lanes.items()})
        states = {}
        for each, lane in self.lanes.items():
            if lane.saved != lane.position:
                states[each] = f"{name}-{each}"
                self.world.sink.states[states[each]] = (each, lane.position, lane.state)
                lane.saved = lane.position
        self.world.sink.files[name] = self.pieces
        self.pieces = []
        for each in [each for each, lane in self.lanes.items() if not lane.runs]:
            del self.lanes[each]
        of = (wanted.checkpoint, wanted.attempt)
        event = CutMade(*of, positions, reads, Map(states), name)
        self.node.operator_watch.cut(event, self.lanes)
        # The states are stored first; what is delivered meanwhile is reported before.
        due = max(self._reported_until, self.world.engine.now) + self.chance.between(1, 80)
        failed = CutFailed(*of, "the group refused an offset")
        outcome = failed if self._drain_fails() else event
        self.world.engine.at(due, self.node, self.node.tell_operator, outcome)

    def _drain_fails(self) -> bool:
        """Return whether the group refuses the offsets of a drain."""
        has_drains = self.node.operator.config.rebalance == RESET
        return has_drains and not self.world.is_calm and self._commits.happens(_REFUSED)
