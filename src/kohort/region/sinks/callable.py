"""A sink built from the application's own functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from kohort.region.machines.records import OperatorId, RegionPartition
from kohort.region.sinks.sink import Rows, check_shown

if TYPE_CHECKING:
    from kohort.region.sinks.sink import CutWriter


class CallableSink:
    """A sink built from three functions.

    Args:
        prepare: Stores rows invisibly to readers, and returns a reference of at most 64 KiB.
        commit: Makes the output of a checkpoint visible, given its references. It is called again
            after a crash, and must then recognize by the checkpoint's number that the work is done.
        abort: Discards rows that were not prepared; optional.
        shown: Returns the newest visible checkpoint, 0 for none. Without it the region does not
            notice that output was deleted or reverted, and continues after the gap.
    """

    def __init__(
        self,
        prepare: Callable[[OperatorId, int, Rows], str],
        commit: Callable[[int, Sequence[str]], None],
        abort: Callable[[Rows], None] | None = None,
        shown: Callable[[], int] | None = None,
    ) -> None:
        self._prepare = prepare
        self._commit = commit
        self._abort = abort
        self._shown = shown

    def open(self, region: str, region_id: str, shown: int) -> None:  # noqa: ARG002  # the protocol's
        """Accept every region whose output still exists."""
        self.check(shown)

    def check(self, shown: int) -> None:
        """Compare with the result of the function `shown`."""
        if self._shown is not None:
            check_shown("the output", self._shown(), shown)

    def writer(self, operator: OperatorId, attempt: int) -> CutWriter:  # noqa: ARG002  # the protocol's
        """Return a writer for the output of an operator in an attempt."""
        return _CallableWriter(operator, self._prepare, self._abort)

    def publish(self, checkpoint: int, outputs: Mapping[OperatorId, str]) -> None:
        """Call `commit`."""
        self._commit(checkpoint, [outputs[each] for each in sorted(outputs)])


class _CallableWriter:
    def __init__(
        self,
        operator: OperatorId,
        prepare: Callable[[OperatorId, int, Sequence[Any]], str],
        abort: Callable[[Sequence[Any]], None] | None,
    ) -> None:
        self._operator = operator
        self._prepare = prepare
        self._abort = abort
        self._rows: list[Any] = []

    def write(self, _partition: RegionPartition, rows: object) -> None:
        self._rows.extend(cast("Iterable[Any]", rows))

    def prepare(self, checkpoint: int, _attempt: int) -> str:
        rows, self._rows = self._rows, []
        return self._prepare(self._operator, checkpoint, rows) if rows else ""

    def abort(self) -> None:
        rows, self._rows = self._rows, []
        if rows and self._abort is not None:
            self._abort(rows)
