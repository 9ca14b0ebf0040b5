"""The output of a region: operators prepare it unseen, the controller makes it visible.

An operator hands over its output between two cuts, which readers do not see yet. Once the
checkpoint is complete in the log, the active controller makes all of it visible at once, in the
order of the checkpoints. A controller may die in between, so `publish` may be repeated, even after
it has succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kohort.region.errors import SinkError
from kohort.region.machines.records import OperatorId, RegionPartition

if TYPE_CHECKING:
    import pyarrow as pa

_IDENTITY_MAX = 1_000

# A file of a task as a JSON object, whose fields are private to the sink.
TaskFile: TypeAlias = dict[str, Any]

Rows: TypeAlias = "Sequence[Any]"
"""The rows that the application's function has returned, in order."""


class CutWriter(Protocol):
    """Takes the output of one operator in one attempt."""

    def write(self, partition: RegionPartition, rows: object) -> None:
        """Take the `rows` that the function returned for records of a `partition`."""

    def prepare(self, checkpoint: int, attempt: int) -> str:
        """Make the rows since the last call durable, as part of a `checkpoint` in an `attempt`.

        Returns:
            A reference for `publish`, at most 64 KiB of text; empty when nothing was written.
        """

    def abort(self) -> None:
        """Discard the rows since the last `prepare`."""


class TaskWriter(Protocol):
    """Takes the rows of one task, on any machine."""

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Take rows."""

    def close(self) -> list[TaskFile]:
        """Make the rows durable, and return the files as JSON objects."""

    def discard(self) -> None:
        """Remove the files written so far."""


class Publisher(Protocol):
    """Makes the output of a region visible: the part of a sink that a controller needs."""

    def open(self, region: str, region_id: str, shown: int) -> None:
        """Check that the place belongs to this region; called first, in every process.

        Args:
            region: Name of the region.
            region_id: Id of its control topic. A recreated region counts its checkpoints from one
                again, so a place that has another id must refuse.
            shown: The newest checkpoint that the place must show, see `check`; 0: none.

        Raises:
            SinkError: It does not.
        """

    def check(self, shown: int) -> None:
        """Check that a published checkpoint is still visible; called before each publication.

        Output that was deleted or set back to an earlier version must not be continued: readers
        would see a gap.

        Args:
            shown: The newest checkpoint with output that the log says was published; 0: none.

        Raises:
            SinkError: It is not visible. The message names both checkpoints, and what to do.
        """

    def publish(self, checkpoint: int, outputs: Mapping[OperatorId, str]) -> None:
        """Make the `outputs` of a complete `checkpoint` visible, all at once, unless they are.

        Raises:
            SinkError: The output is missing or damaged, or another writer uses the place.
        """


class RegionSink(Publisher, Protocol):
    """Where the output of a region goes."""

    def writer(self, operator: OperatorId, attempt: int) -> CutWriter:
        """Return a writer for the output of an `operator` in an `attempt`."""


class SharedSink(RegionSink, Protocol):
    """A sink to which tasks on several machines write, each its own files; it can be pickled."""

    def task_writer(self, operator: str, attempt: int) -> Callable[[], TaskWriter]:
        """Return a factory for the writer of a task; it can be pickled, and is called in the task.

        Args:
            operator: Name of the operator.
            attempt: Attempt of the region.
        """

    def hand_over(
        self, operator: OperatorId, checkpoint: int, attempt: int, files: Sequence[TaskFile]
    ) -> str:
        """Return a durable reference to `files` of tasks, for `publish`; empty without files.

        Tasks of `operator` wrote them for `checkpoint` in `attempt`.
        """

    def remove(self, files: Sequence[TaskFile]) -> None:
        """Remove `files` of tasks that will never become visible."""


def identity_of(publisher: Publisher) -> str:
    """Return an id of an output, and its place; empty if it has no id.

    One directory or table has many names: paths through links, mounts, URIs. So each output has an
    id of its own.

    Args:
        publisher: An opened publisher, which may have a method `identity` that returns both texts.
    """
    identity: Callable[[], tuple[str, str]] | None = getattr(publisher, "identity", None)
    number, place = ("", "") if identity is None else identity()
    return f"{number} {place}"[:_IDENTITY_MAX] if number else ""


def missing_list(error: OSError) -> str:
    """Say that an operator's list of files is missing."""
    return (
        f"the list of an operator's files is missing: {error}. If that operator has another sink, "
        "give all processes of the region the same"
    )


def check_shown(place: object, found: int, shown: int) -> None:
    """Refuse output that was set back.

    Raises:
        SinkError: The newest checkpoint found, 0 for none, is older than the newest published one.
    """
    if found < shown:
        shows = f"checkpoint {found} at most" if found else "no checkpoint of this region"
        raise SinkError(
            f"{place} shows {shows}, and the region has published checkpoint {shown}: the output "
            "was deleted or set back. The region continues after that checkpoint, and would never "
            "write the missing rows again. Restore the output as it was, or process everything "
            "again with a region of another name and an output of its own"
        )
