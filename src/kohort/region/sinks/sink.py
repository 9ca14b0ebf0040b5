"""The output of a region: operators prepare it invisibly, the controller publishes it.

Between two cuts, an operator prepares output that readers do not see yet. Once the checkpoint is
complete in the log, the active controller makes all of its output visible at once, in the order of
the checkpoints. A controller may die in between, so `publish` may be repeated, even after it has
succeeded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kohort.region.errors import SinkError
from kohort.region.machines.records import OperatorId, RegionPartition

if TYPE_CHECKING:
    import pyarrow as pa

_IDENTITY_MAX = 1_000

# A task's file as a JSON object whose fields are private to the sink.
TaskFile: TypeAlias = dict[str, Any]

Rows: TypeAlias = "Sequence[Any]"
"""The rows returned by the application's function, in order."""

_COLOUR = re.compile("\x1b\\[[0-9;]*m")


class CutWriter(Protocol):
    """Receives the output of one operator in one attempt."""

    def write(self, partition: RegionPartition, rows: object) -> None:
        """Write the `rows` that the function returned for records of a `partition`."""

    def prepare(self, checkpoint: int, attempt: int) -> str:
        """Make the rows since the last call durable, as part of a `checkpoint` in an `attempt`.

        Returns:
            A reference for `publish`, at most 64 KiB of text; empty if nothing was written.
        """

    def abort(self) -> None:
        """Discard the rows since the last `prepare`."""


class TaskWriter(Protocol):
    """Receives the rows of one task, on any machine."""

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Write rows."""

    def close(self) -> list[TaskFile]:
        """Make the rows durable, and return the files as JSON objects."""

    def discard(self) -> None:
        """Remove the files written so far."""


class Publisher(Protocol):
    """Publishes the output of a region: the part of a sink that a controller needs."""

    def open(self, region: str, region_id: str, shown: int) -> None:
        """Check that the location belongs to this region; called first, in every process.

        Args:
            region: Name of the region.
            region_id: Id of its control topic. A recreated region counts its checkpoints from one
                again, so a location with a different id must refuse.
            shown: The newest checkpoint that the location must show, see `check`; 0: none.

        Raises:
            SinkError: It belongs to another region.
        """

    def check(self, shown: int) -> None:
        """Check that a published checkpoint is still visible; called before each publication.

        Output that was deleted or reverted to an earlier version must not be continued: readers
        would see a gap.

        Args:
            shown: The newest checkpoint with output that was published according to the log; 0:
                none.

        Raises:
            SinkError: It is not visible. The message names both checkpoints and the remedy.
        """

    def publish(self, checkpoint: int, outputs: Mapping[OperatorId, str]) -> None:
        """Publish the `outputs` of a complete `checkpoint`, all at once; do nothing if published.

        Raises:
            SinkError: The output is missing or damaged, or another writer uses the location.
        """


class RegionSink(Publisher, Protocol):
    """The destination of a region's output."""

    def writer(self, operator: OperatorId, attempt: int) -> CutWriter:
        """Return a writer for the output of an `operator` in an `attempt`."""


class SharedSink(RegionSink, Protocol):
    """A sink to which tasks on several machines write their own files; it can be pickled."""

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
    """Return an output's id and its location; the id is empty if it has none.

    A directory or table may have many names, through links, mounts or URIs. So each output has its
    own id.

    Args:
        publisher: An opened publisher, which may have a method `identity` that returns both texts.
    """
    identity: Callable[[], tuple[str, str]] | None = getattr(publisher, "identity", None)
    number, place = ("", "") if identity is None else identity()
    return f"{number} {place}"[:_IDENTITY_MAX] if number else ""


def missing_list(error: OSError) -> str:
    """Return a message about an operator's missing list of files."""
    return (
        f"the list of an operator's files is missing: {error}. If that operator has another sink, "
        "give all processes of the region the same"
    )


def check_shown(place: object, found: int, shown: int) -> None:
    """Refuse output that was reverted to an earlier version.

    Raises:
        SinkError: The newest checkpoint found (0: none) is older than the newest published one.
    """
    if found < shown:
        shows = f"checkpoint {found} at most" if found else "no checkpoint of this region"
        raise SinkError(
            f"{place} shows {shows}, and the region has published checkpoint {shown}: the output "
            "was deleted or set back. The region continues after that checkpoint, and would never "
            "write the missing rows again. Restore the output as it was, or process everything "
            "again with a region of another name and an output of its own"
        )


@contextmanager
def storing(place: object) -> Iterator[None]:
    """Add the location to the error if output cannot be stored there.

    Raises:
        SinkError: Storing failed; `__cause__` is the file system's error.
    """
    try:
        yield
    except OSError as error:
        raise SinkError(
            f"output cannot be stored in {place}: {one_line(error)}. This operator stops; records "
            "processed since the last checkpoint are processed again"
        ) from error


def one_line(error: Exception) -> str:
    """Return an error's text as one line, without deltalake's colours and line breaks."""
    return " ".join(_COLOUR.sub("", str(error)).replace("\u21b3", ":").split()).replace(" :", ":")
