"""The rules of a region, checked from outside: the sink, the log's bytes, time.

None of them uses the fold. Their names are in docs/internals/region-rules.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from kohort.region.errors import RegionError
from kohort.region.machines.reader import Reader
from kohort.region.machines.records import OperatorId, RegionPartition, RegionRecord
from kohort.region.machines.snapshot import dump, load
from kohort.region.machines.state import RegionState
from kohort.simulation.regions.parts import ControlLog, Piece, advanced
from kohort.simulation.regions.referee import Referee, difference, summary_of
from kohort.simulation.seeded import RuleBrokenError


class Checkers:
    """Checks the visible behaviour of a region.

    R1: the visible rows of a partition are a prefix of the undisturbed run: each record once, in
        order, and with the state of an undisturbed run. R2: a published checkpoint shows exactly
        its contributions. R3: checkpoints become visible in order. R4: complete checkpoints become
        visible.
    R5: once faults end, everything is processed in time. R6: a listener returns in time. R7: the
        state that a new owner gets is that of the undisturbed run. R8: no reader ends with an
        error, and no machine raises. R9: an undisturbed region never resets. R10: a log folds to
        the same state, no matter how it was compacted. R11: without faults, operators that join
        cause no reset. R12: a reader of the log has the state that `referee` computes. R13 to R16
        are in `watching`. R17: a partition that was added since the region began is read from its
        beginning.
    """

    def __init__(self) -> None:
        self.starts: dict[RegionPartition, int] = {}
        self.ends: dict[RegionPartition, int] = {}
        self.states: dict[RegionPartition, int] = {}
        self.given: dict[str, tuple[int, dict[RegionPartition, int]]] = {}
        self.completed: list[int] = []
        self.counts: dict[str, int] = {}
        self._undisturbed: dict[RegionPartition, dict[int, int]] = {}
        self._referee = Referee()
        self._sound: dict[int, RegionState] = {}

    def read_log(
        self,
        batch: list[tuple[bytes, bytes | None]],
        decode: Callable[[bytes | None, bytes], RegionRecord],
        visible: Sequence[int],
    ) -> None:
        """Check the bytes that were appended."""
        for key, value in batch:
            try:
                self._referee.read(None if value is None else decode(key, value))
            except RegionError:
                self._referee.read(None)
            kind = key.split(b"/")[0]
            if kind == b"published" and value is not None:
                checkpoint = json.loads(value)["checkpoint"]
                if checkpoint not in visible:
                    raise RuleBrokenError(
                        "R4", f"the log says that {checkpoint} is visible, and it is not"
                    )
            if value is None or kind not in (b"contribution", b"complete", b"claim"):
                continue
            said = json.loads(value)
            if kind == b"claim":
                for topic_id, count in said["counts"]:
                    self.counts[topic_id] = max(count, self.counts.get(topic_id, 0))
            elif kind == b"contribution":
                offsets = {RegionPartition(t, i, n): at for t, i, n, at in said["offsets"]}
                self.given[said["output"]] = said["checkpoint"], offsets
            else:
                self.completed.append(said["checkpoint"])

    def check_fold(self, state: RegionState) -> None:
        """Check the state of a reader that has read the log up to an offset."""
        if self._sound.get(state.offset) == state:
            return
        known = self._referee.shown.get(state.offset)
        if known is None:
            raise RuleBrokenError("R12", f"the log was read up to {state.offset}, beyond its end")
        wrong = difference(summary_of(state), known)
        if wrong:
            raise RuleBrokenError("R12", f"at {state.offset}: {wrong}")
        self._sound[state.offset] = state

    def undisturbed(self, partition: RegionPartition, offset: int) -> int:
        """Return the state that an undisturbed run has at an offset."""
        start = self.starts.get(partition, 0)
        known = self._undisturbed.setdefault(partition, {start: 0})
        if offset not in known:
            nearest = max((each for each in known if each < offset), default=start)
            known[offset] = advanced(known[nearest], partition, nearest, offset)
        return known[offset]

    def check_read(self, partition: RegionPartition, offset: int, state: int) -> None:
        """Check an operator that begins to read."""
        is_added = partition.partition >= self.counts.get(partition.topic_id, 0)
        if is_added and self.counts and self.starts.setdefault(partition, offset):
            raise RuleBrokenError("R17", f"{partition} was added, and is read from {offset} on")
        if offset < self.starts.setdefault(partition, offset):
            raise RuleBrokenError("R7", f"{partition} is read from {offset}, before its start")
        if state != self.undisturbed(partition, offset):
            raise RuleBrokenError("R7", f"{partition} is read from {offset} with another state")

    def check_commit(
        self, checkpoint: int, outputs: dict[OperatorId, str], files: dict[str, list[Piece]]
    ) -> None:
        """Check a checkpoint that became visible."""
        expected: dict[RegionPartition, int] = {}
        for who, reference in sorted(outputs.items()):
            if reference not in files:
                raise RuleBrokenError("R2", f"{who} contributed {reference}, which is not there")
            for piece in files[reference]:
                self._add(checkpoint, piece)
            of, offsets = self.given[reference]
            if of != checkpoint:
                raise RuleBrokenError("R2", f"{checkpoint} shows output of {of} by {who}")
            expected.update(offsets)
        for partition, offset in sorted(expected.items()):
            start = self.starts.setdefault(partition, offset)  # it was not read yet
            end = self.ends.get(partition, start)
            if end != offset:
                raise RuleBrokenError(
                    "R2", f"{checkpoint} says {partition} is at {offset}, visible is up to {end}"
                )

    def _add(self, checkpoint: int, piece: Piece) -> None:
        partition = piece.partition
        end = self.ends.get(partition, self.starts.get(partition, 0))
        if piece.first != end:
            word = "twice" if piece.first < end else "missing"
            raise RuleBrokenError(
                "R1", f"{checkpoint} shows {partition} from {piece.first}, {end} is next: {word}"
            )
        if piece.before != self.undisturbed(partition, piece.first):
            raise RuleBrokenError("R1", f"{checkpoint}: {partition} has another state at {end}")
        self.ends[partition] = piece.end

    def check_order(self, visible: list[int]) -> None:
        """Check that checkpoints are in order."""
        if visible != sorted(set(visible)):
            raise RuleBrokenError("R3", f"visible in the order {visible[-5:]}")

    def check_log(self, log: ControlLog) -> None:
        """Check that the compacted log folds to the same state."""
        whole, left = Reader(log.decode), Reader(log.decode)
        for offset, (key, value) in enumerate(log.everything):
            whole.take(offset, key, value)
        for offset, (key, value) in log.entries.items():
            left.take(offset, key, value)
        whole.reach(log.end)
        left.reach(log.end)
        if whole.state is None or left.state is None:
            raise RuleBrokenError("R10", "what compaction left cannot be folded")
        if dump(whole.state) != dump(left.state):
            raise RuleBrokenError("R10", "what compaction left folds to something else")
        if load(dump(whole.state)) != whole.state:
            raise RuleBrokenError("R10", "a snapshot of the end is not the state there")
