"""How an application and the processes of its sources reach each other: files that both see.

Spark starts the process of a source as a child of the driver's JVM and tells it nothing about the
query. So everything meets in a directory that is named after the JVM: the sources make one each in
it, the application's listener leaves a mark, and words about finished batches go from one to the
other. The directory belongs to the user alone: words decide what is committed to the group.
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
EXCUSE = "excuse"
LISTENING = "listening"
SOURCE = "source-"
WORD = "word-"
# Two changes of a directory within one tick of the kernel's clock leave the same time on it.
CLOCK_TICK_NS = 50_000_000
# So many batches without a word say that there is no listener to this query: words are late, too.
UNANNOUNCED_MAX = 3


class ControlError(KohortError):
    """The directory in which an application and its sources meet cannot be trusted or made."""


class Word(Struct, frozen=True):
    """What the application's listener says: a batch is in the sink and in Spark's commit log.

    Attributes:
        run_id: The run of the query.
        batch_id: Spark's number of the batch.
        end: The batch's manifest, as the source has given it to Spark.
        is_stateful: Whether the query has state operators.
        sink: Short name of the directory of its file sink; empty for every other sink.
        refusal: Why the batch must not be committed; empty when it may be.
        checkpoint: The query's checkpointLocation; empty where Spark does not say it.
    """

    run_id: str
    batch_id: int
    end: OffsetJson
    is_stateful: bool
    sink: str = ""
    refusal: str = ""
    checkpoint: str = ""


class Excuse(Struct, frozen=True):
    """Why a source that was frozen is not drained.

    Attributes:
        why: The reason.
        is_final: Whether waiting will not change it.
    """

    why: str
    is_final: bool


class Control:
    """The source's end, in the process that Spark's JVM has started for it."""

    def __init__(self) -> None:
        self._application: Path | None = None
        self._words: list[tuple[int, Word]] = []
        self._read_at: tuple[int, int] = (-1, 0)
        self._unannounced = 0
        self._excuse: Excuse | None = None
        try:
            self._application = application_directory(os.getppid())
            _remove_left_behind(self._application.parent)
        except (ControlError, OSError) as error:
            log.warning(
                "%s. So kohort.spark.install cannot tell this query that a batch is over; set the "
                "option checkpointLocation, or TMPDIR to a directory of your own",
                error,
            )
        self.directory = Path(
            tempfile.mkdtemp(prefix=f"{SOURCE}{os.getpid()}-", dir=self._application)
        )

    @property
    def frozen(self) -> bool:
        """Whether no more batches are wanted."""
        return (self.directory / FREEZE).exists()

    @property
    def is_freezing(self) -> bool:
        """Whether an application has asked for an end, after some batch; asked often, so cheap."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.directory) as entries:
            return any(entry.name.startswith(FREEZE) for entry in entries)
        return False

    def is_frozen(self, start: OffsetJson) -> bool:
        """Say whether no more batches are wanted after `start`, the last one that is finished.

        An application that drains a query before its first progress cannot know which source is
        the query's; it freezes the one that has given out this batch.
        """
        if not self.is_freezing:
            return False
        with contextlib.suppress(FileNotFoundError):
            after = self.directory / _freeze_after(start)
            after.replace(self.directory / _drained_after(start))
            (self.directory / FREEZE).touch()
        return self.frozen

    def acknowledge(self) -> None:
        """Say that no batch is open and none will be."""
        (self.directory / DRAINED).touch()

    def excuse(self, excuse: Excuse) -> None:
        """Say why the source is not drained."""
        if excuse != self._excuse:
            write_whole(self.directory / EXCUSE, json.dumps(asdict(excuse)))
            self._excuse = excuse

    @property
    def is_listened(self) -> bool:
        """Whether the application has a listener that says when a batch is over."""
        return (
            self._application is not None
            and self._unannounced < UNANNOUNCED_MAX
            and (self._application / LISTENING).exists()
        )

    def count_finished(self) -> None:
        """Take note that Spark itself has shown that a batch is over, which a word should say.

        A listener is one of a session, and sources see only that the application has one: it may
        be that of another session, or of one that is stopped.
        """
        if not self.is_listened:
            return
        self._unannounced = 0 if self.word() else self._unannounced + 1
        if self._unannounced == UNANNOUNCED_MAX:
            log.warning(
                "%d batches are over, of which the listener of kohort.spark.install has said "
                "nothing: it is one of another session. Call install(spark) with the session that "
                "starts the query; until then a finished batch looks open until the next trigger",
                UNANNOUNCED_MAX,
            )

    def word(self) -> Word | None:
        """Return the last thing that the listener has said; costs one look at a directory."""
        self._read_words()
        return self._words[-1][1] if self._words else None

    def word_about(self, end: OffsetJson) -> Word | None:
        """Return what the listener has said about the batch `end`, None as long as it has not.

        Prefer it to `word`: as long as the listener cannot know which source is a query's, it
        tells every source of the application.
        """
        self._read_words()
        return next((word for _, word in self._words if word.end == end), None)

    def refused(self, nonce: str) -> Word | None:
        """Return the word that refuses a batch of a query, None when none does.

        Args:
            nonce: Names the query's checkpoint: no other query is meant.
        """
        self._read_words()
        of_query = (word for _, word in self._words if nonce and word.end.get("nonce") == nonce)
        return next((word for word in of_query if word.refusal), None)

    def others(self, mark: str) -> dict[Path, int]:
        """Return the files `mark` of the application's other sources, and when they changed."""
        found = {}
        for source in sources_in(self._application) if self._application else ():
            with contextlib.suppress(FileNotFoundError):
                if source != self.directory:
                    found[source / mark] = (source / mark).stat().st_mtime_ns
        return found

    def close(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _read_words(self) -> None:
        try:
            changed = self.directory.stat().st_mtime_ns
        except OSError:  # closed in the meantime
            return
        last, read_at = self._read_at
        if changed == last and read_at - changed > CLOCK_TICK_NS:
            return
        self._read_at = (changed, time.time_ns())
        self._words = sorted(_words(self.directory), key=lambda said: said[0])


def application_of_this_process() -> Path | None:
    """Return the directory in which the sources of this process's JVM are found.

    Returns:
        None where this process has no JVM, as with Spark Connect.

    Raises:
        ControlError: The directory cannot be trusted or made.
    """
    from pyspark import SparkContext

    jvm = SparkContext._jvm  # noqa: SLF001  # PySpark has no other way to the JVM
    if jvm is None:
        return None
    process: int = jvm.java.lang.ProcessHandle.current().pid()
    # The sources have the environment of the JVM, which need not be this process's.
    named = (jvm.java.lang.System.getenv(name) for name in ("TMPDIR", "TEMP", "TMP"))
    folder: str | None = next(filter(None, named), None)
    return application_directory(process, folder)


def application_directory(jvm: int, folder: str | None = None) -> Path:
    """Return where an application and its sources meet; make it if it is not there.

    It stays until the JVM has ended and another application starts.

    Args:
        jvm: Process id of the driver's JVM.
        folder: Where processes that the JVM starts keep temporary files, if this is not one.

    Raises:
        ControlError: Another user owns the directory or could write to it.
    """
    root = Path(folder or tempfile.gettempdir()) / f"kohort-{os.geteuid()}"
    _make_private(root)
    # The time of the start keeps a later JVM with the same number from what this one leaves.
    directory = root / f"{jvm}-{_started(jvm)}"
    _make_private(directory)
    return directory


def sources_in(application: Path) -> list[Path]:
    """Return the directories of the sources of an application, in which `say` and `freeze` write.

    Args:
        application: What `application_directory` has returned.
    """
    with contextlib.suppress(FileNotFoundError):
        return [entry for entry in application.iterdir() if entry.name.startswith(SOURCE)]
    return []


def say(sources: Iterable[Path], word: Word) -> None:
    """Tell sources that a batch is over.

    Args:
        sources: Their directories; one whose query has ended meanwhile is passed over.
        word: What to say.
    """
    text = json.dumps(asdict(word))
    for source in sources:
        write_whole(source / f"{WORD}{word.run_id}", text)


def freeze(source: Path) -> None:
    """Tell a source to offer no more batches."""
    write_whole(source / FREEZE, "")


def freeze_after(sources: Iterable[Path], start: OffsetJson) -> None:
    """Tell the source that has given out the batch `start` to offer no more after it.

    Args:
        sources: The sources of the application, of which at most one has given it out.
        start: The batch.
    """
    for source in sources:
        write_whole(source / _freeze_after(start), "")


def is_drained(source: Path) -> bool:
    """Whether a source that was frozen has no open batch any more."""
    return (source / DRAINED).exists()


def excuse_of(source: Path) -> Excuse | None:
    """Return why a source that was frozen is not drained yet, None as long as it says nothing."""
    with contextlib.suppress(FileNotFoundError):
        return Excuse(**json.loads((source / EXCUSE).read_text()))
    process = source.name.removeprefix(SOURCE).partition("-")[0]
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return Excuse(f"the source's process {process} has ended", is_final=True)
    except PermissionError:  # it runs as another user
        pass
    return None


def is_drained_after(source: Path, start: OffsetJson) -> bool:
    """Whether a source has no open batch any more since `start`, after which it was frozen."""
    return (source / _drained_after(start)).exists() and is_drained(source)


def is_unique(end: Mapping[str, object]) -> bool:
    """Whether no other query can have the same manifest, as it holds the checkpoint's nonce."""
    return bool(end.get("nonce"))


def _freeze_after(start: OffsetJson) -> str:
    return f"{FREEZE}-after-{_digest(start)}"


def _drained_after(start: OffsetJson) -> str:
    return f"{DRAINED}-after-{_digest(start)}"


def _digest(start: OffsetJson) -> str:
    return hashlib.sha256(json.dumps(start, sort_keys=True).encode()).hexdigest()[:32]


def _words(directory: Path) -> Iterator[tuple[int, Word]]:
    for file in directory.glob(f"{WORD}*"):
        with contextlib.suppress(FileNotFoundError):
            said = json.loads(file.read_text())
            yield file.stat().st_mtime_ns, Word(**said)


def write_whole(file: Path, text: str) -> None:
    """Write a file that a reader sees whole or not at all; nothing where the directory is gone."""
    draft = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        draft.write_text(text)
        draft.replace(file)
    except FileNotFoundError:
        log.debug("the source of %s has ended", file.parent)


def _make_private(directory: Path) -> None:
    """Make a directory for this user alone, or check that it is one.

    Raises:
        ControlError: It is not.
    """
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise ControlError(f"{directory} cannot be made: {error.strerror}") from error
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise ControlError(f"{directory} is no directory")
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise ControlError(
            f"{directory} belongs to user {found.st_uid} with mode "
            f"{stat.S_IMODE(found.st_mode):o}; it must be user {os.geteuid()}'s alone, with 700"
        )


def _started(process: int) -> str:
    """Return when a process has started, in ticks since the machine has; "" where none says."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[19]


def _remove_left_behind(root: Path) -> None:
    """Remove what killed processes have left: their number is free or reused now."""
    if not _started(os.getpid()):
        return
    for entry in root.iterdir():
        jvm, _, started = entry.name.partition("-")
        if jvm.isdecimal() and _started(int(jvm)) != started:
            shutil.rmtree(entry, ignore_errors=True)
