"""Communication between an application and the processes of its sources, through files.

Spark starts the process of a source as a child of the driver's JVM and tells it nothing about the
query. So they use a directory that is named after the JVM: each source creates a subdirectory, the
application's listener leaves a mark, and writes messages about finished batches there. The
directory is private to the user, because the messages decide what is committed to the group.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from kohort.errors import KohortError
from kohort.spark.checkpoint.manifest import OffsetJson

log = logging.getLogger("kohort.spark")

FREEZE = "freeze"
DRAINED = "drained"
NOT_DRAINED = "not-drained"
LISTENING = "listening"
SOURCE = "source-"
DONE = "done-"
# Two changes of a directory within one tick of the kernel's clock get the same timestamp.
CLOCK_TICK_NS = 50_000_000
# After this many batches without a message the query has no listener; a few may just be late.
UNREPORTED_MAX = 3


class ControlError(KohortError):
    """The directory shared by an application and its sources is unsafe or cannot be created."""


class BatchDone(Struct, frozen=True):
    """A message of the application's listener: a batch is in the sink and in Spark's commit log.

    Attributes:
        run_id: The run of the query.
        batch_id: Spark's number of the batch.
        end: The batch's manifest, as the source passed it to Spark.
        is_stateful: Whether the query has state operators.
        sink: Digest of the directory of its file sink; empty for every other sink.
        refusal: Why the batch must not be committed; empty if it may be.
        checkpoint: The query's checkpointLocation; empty if Spark does not expose it.
    """

    run_id: str
    batch_id: int
    end: OffsetJson
    is_stateful: bool
    sink: str = ""
    refusal: str = ""
    checkpoint: str = ""


class NotDrained(Struct, frozen=True):
    """Why a frozen source is not drained.

    Attributes:
        why: The reason.
        is_final: Whether waiting will not help.
    """

    why: str
    is_final: bool


class Control:
    """The source's side, in the process that Spark's JVM has started for it."""

    def __init__(self) -> None:
        self._application: Path | None = None
        self._messages: list[tuple[int, BatchDone]] = []
        self._read_at: tuple[int, int] = (-1, 0)
        self._unreported = 0
        self._not_drained: NotDrained | None = None
        try:
            self._application = application_directory(os.getppid())
            _remove_left_behind(self._application.parent)
        except (ControlError, OSError) as error:
            log.warning(
                "%s. So kohort.spark.install cannot report finished batches to this query; set the "
                "option checkpointLocation, or TMPDIR to a directory of your own",
                error,
            )
        self.directory = Path(
            tempfile.mkdtemp(prefix=f"{SOURCE}{os.getpid()}-", dir=self._application)
        )

    @property
    def frozen(self) -> bool:
        """Whether the source must offer no more batches."""
        return (self.directory / FREEZE).exists()

    @property
    def is_freezing(self) -> bool:
        """Whether an application has asked to stop after some batch; called often, so cheap."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.directory) as entries:
            return any(entry.name.startswith(FREEZE) for entry in entries)
        return False

    def is_frozen(self, start: OffsetJson) -> bool:
        """Return whether `start`, the last finished batch, must be the last one.

        An application that drains a query before its first progress report does not know which
        source belongs to the query; it freezes the source that has offered this batch.
        """
        if not self.is_freezing:
            return False
        with contextlib.suppress(FileNotFoundError):
            after = self.directory / _freeze_after(start)
            after.replace(self.directory / _drained_after(start))
            (self.directory / FREEZE).touch()
        return self.frozen

    def acknowledge(self) -> None:
        """Report that no batch is open and none will be."""
        (self.directory / DRAINED).touch()

    def report_not_drained(self, reason: NotDrained) -> None:
        """Report why the source is not drained."""
        if reason != self._not_drained:
            write_whole(self.directory / NOT_DRAINED, json.dumps(asdict(reason)))
            self._not_drained = reason

    @property
    def has_listener(self) -> bool:
        """Whether the application has a listener that reports finished batches."""
        return (
            self._application is not None
            and self._unreported < UNREPORTED_MAX
            and (self._application / LISTENING).exists()
        )

    def count_finished(self) -> None:
        """Count a batch that Spark itself has shown to be finished, which a message should report.

        A listener belongs to a session, and sources see only that the application has a listener:
            it may belong to another session, or to a stopped one.
        """
        if not self.has_listener:
            return
        self._unreported = 0 if self.last_done() else self._unreported + 1
        if self._unreported == UNREPORTED_MAX:
            log.warning(
                "%d batches are finished, and the listener of kohort.spark.install has reported "
                "none of them: it belongs to another session. Call install(spark) with the session "
                "that starts the query; until then a batch looks open until the next trigger",
                UNREPORTED_MAX,
            )

    def last_done(self) -> BatchDone | None:
        """Return the listener's last message; cheap, as it checks one directory."""
        self._read_messages()
        return self._messages[-1][1] if self._messages else None

    def done_of(self, end: OffsetJson) -> BatchDone | None:
        """Return the listener's message about the batch `end`, None if there is none yet.

        Prefer it to `last_done`: while the listener does not know which source belongs to a query,
        it tells every source of the application.
        """
        self._read_messages()
        return next((done for _, done in self._messages if done.end == end), None)

    def refused(self, nonce: str) -> BatchDone | None:
        """Return the message that refuses a batch of a query, None if there is none.

        Args:
            nonce: Identifies the query's checkpoint, and thus the query.
        """
        self._read_messages()
        of_query = (done for _, done in self._messages if nonce and done.end.get("nonce") == nonce)
        return next((done for done in of_query if done.refusal), None)

    def others(self, mark: str) -> dict[Path, int]:
        """Return the `mark` files of the application's other sources, and when they changed."""
        found = {}
        for source in sources_in(self._application) if self._application else ():
            with contextlib.suppress(FileNotFoundError):
                if source != self.directory:
                    found[source / mark] = (source / mark).stat().st_mtime_ns
        return found

    def close(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _read_messages(self) -> None:
        try:
            changed = self.directory.stat().st_mtime_ns
        except OSError:  # closed meanwhile
            return
        last, read_at = self._read_at
        if changed == last and read_at - changed > CLOCK_TICK_NS:
            return
        self._read_at = (changed, time.time_ns())
        self._messages = sorted(_messages(self.directory), key=lambda read: read[0])


def application_of_this_process() -> Path | None:
    """Return the directory for the sources of this process's JVM.

    Returns:
        None if this process has no JVM, as with Spark Connect.

    Raises:
        ControlError: The directory is unsafe or cannot be created.
    """
    from pyspark import SparkContext

    jvm = SparkContext._jvm  # noqa: SLF001  # PySpark has no public access to the JVM
    if jvm is None:
        return None
    process: int = jvm.java.lang.ProcessHandle.current().pid()
    # The sources have the JVM's environment, which may differ from this process's.
    named = (jvm.java.lang.System.getenv(name) for name in ("TMPDIR", "TEMP", "TMP"))
    folder: str | None = next(filter(None, named), None)
    return application_directory(process, folder)


def application_directory(jvm: int, folder: str | None = None) -> Path:
    """Return the directory shared by an application and its sources; create it if missing.

    It remains until the JVM has ended and another application starts.

    Args:
        jvm: Process id of the driver's JVM.
        folder: Directory for temporary files of the JVM's child processes, if this process is not
            one of them.

    Raises:
        ControlError: Another user owns the directory or could write to it.
    """
    root = Path(folder or tempfile.gettempdir()) / f"kohort-{os.geteuid()}"
    _make_private(root)
    # The start time keeps a later JVM with the same process id from using this one's files.
    directory = root / f"{jvm}-{_started(jvm)}"
    _make_private(directory)
    return directory


def sources_in(application: Path) -> list[Path]:
    """Return the directories of an application's sources, for `notify` and `freeze`.

    Args:
        application: The result of `application_directory`.
    """
    with contextlib.suppress(FileNotFoundError):
        return [entry for entry in application.iterdir() if entry.name.startswith(SOURCE)]
    return []


def notify(sources: Iterable[Path], done: BatchDone) -> None:
    """Tell sources that a batch is finished.

    Args:
        sources: Their directories; one whose query has ended meanwhile is skipped.
        done: The message.
    """
    text = json.dumps(asdict(done))
    for source in sources:
        write_whole(source / f"{DONE}{done.run_id}", text)


def freeze(source: Path) -> None:
    """Tell a source to offer no more batches."""
    write_whole(source / FREEZE, "")


def freeze_after(sources: Iterable[Path], start: OffsetJson) -> None:
    """Tell the source that has offered the batch `start` to offer no more after it.

    Args:
        sources: The sources of the application; at most one of them has offered it.
        start: The batch.
    """
    for source in sources:
        write_whole(source / _freeze_after(start), "")


def is_drained(source: Path) -> bool:
    """Whether a frozen source no longer has an open batch."""
    return (source / DRAINED).exists()


def why_not_drained(source: Path) -> NotDrained | None:
    """Return why a frozen source is not drained yet; None while it gives no reason."""
    with contextlib.suppress(FileNotFoundError):
        return NotDrained(**json.loads((source / NOT_DRAINED).read_text()))
    process = source.name.removeprefix(SOURCE).partition("-")[0]
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return NotDrained(f"the source's process {process} has ended", is_final=True)
    except PermissionError:  # it runs as another user
        pass
    return None


def is_drained_after(source: Path, start: OffsetJson) -> bool:
    """Whether a source, frozen after `start`, no longer has an open batch."""
    return (source / _drained_after(start)).exists() and is_drained(source)


def is_unique(end: Mapping[str, object]) -> bool:
    """Whether the manifest is unique to one query: it contains the checkpoint's nonce."""
    return bool(end.get("nonce"))


def _freeze_after(start: OffsetJson) -> str:
    return f"{FREEZE}-after-{_digest(start)}"


def _drained_after(start: OffsetJson) -> str:
    return f"{DRAINED}-after-{_digest(start)}"


def _digest(start: OffsetJson) -> str:
    return hashlib.sha256(json.dumps(start, sort_keys=True).encode()).hexdigest()[:32]


def _messages(directory: Path) -> Iterator[tuple[int, BatchDone]]:
    for file in directory.glob(f"{DONE}*"):
        with contextlib.suppress(FileNotFoundError):
            read = json.loads(file.read_text())
            yield file.stat().st_mtime_ns, BatchDone(**read)


def write_whole(file: Path, text: str) -> None:
    """Write a file atomically; do nothing if the directory is gone."""
    draft = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        draft.write_text(text)
        draft.replace(file)
    except FileNotFoundError:
        log.debug("the source of %s has ended", file.parent)


def _make_private(directory: Path) -> None:
    """Create a directory private to this user, or check that it is private.

    Raises:
        ControlError: It is not private.
    """
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise ControlError(f"{directory} cannot be created: {error.strerror}") from error
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise ControlError(f"{directory} is not a directory")
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise ControlError(
            f"{directory} belongs to user {found.st_uid} with mode "
            f"{stat.S_IMODE(found.st_mode):o}; it must be user {os.geteuid()}'s alone, with 700"
        )


def _started(process: int) -> str:
    """Return a process's start time, in ticks since boot; "" if unknown."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[19]


def _remove_left_behind(root: Path) -> None:
    """Remove the files of killed processes: their process ids are free or reused now."""
    if not _started(os.getpid()):
        return
    for entry in root.iterdir():
        jvm, _, started = entry.name.partition("-")
        if jvm.isdecimal() and _started(int(jvm)) != started:
            shutil.rmtree(entry, ignore_errors=True)
