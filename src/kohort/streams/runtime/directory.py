"""The directory that holds the state of one task on one machine.

    STATE_DIR/APPLICATION/lock  held while an instance runs
    STATE_DIR/APPLICATION/SUB-TOPOLOGY_PARTITION/
        lock             held while a process uses the directory
        about.json       format, application and task
        checkpoint.json  the changelog offset of each store
        stores/NAME/     one database per store

The checkpoint contains the changelog offset of each store. It is written after the stores are
flushed: a crash in between repeats part of the changelog and loses nothing. State without a
checkpoint cannot be trusted, because compaction may have removed the tombstones of keys that it
still contains: it is dropped, and restored from the start.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec
from msgspec import Struct

from kohort.errors import ConfigError, LocalProtocolError
from kohort.streams.app.steps import check_name
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import (
    DamagedStateError,
    ForeignStateError,
    NewerStateError,
    StateDiskFullError,
    StateError,
    StateInUseError,
)
from kohort.streams.stores.memory import MemoryStore
from kohort.streams.stores.store import Store

log = logging.getLogger(__name__)

FORMAT = 1
_LARGEST_FILE = 1 << 20
_FULL = {errno.ENOSPC, errno.EDQUOT}


class _About(Struct, frozen=True):
    format: int
    application: str
    task: str
    origin: str = ""


class _Checkpoint(Struct, frozen=True):
    crc: int  # of the offsets, since a disk may flip bits
    offsets: dict[str, int]


_File = TypeVar("_File", _About, _Checkpoint)


class TaskDirectory:
    """A task's state on disk; created if missing, locked until `close`.

    Args:
        state_dir: Directory with the state of all applications.
        application: Name of the application.
        task: The task.
        origin: Id of the control topic, which a reset changes; state with another origin is
            dropped, with a WARNING. Empty: unknown, so any state is accepted.

    Attributes:
        path: The directory.

    Raises:
        StateInUseError: Another process or task uses the directory.
        ForeignStateError: It belongs to another application or task.
        NewerStateError: A newer version of kohort wrote it.
        StateDiskFullError: The disk is full.
        StateError: The file system refuses for another reason, given in the message.
    """

    def __init__(
        self, state_dir: Path | str, application: str, task: Task, origin: str = ""
    ) -> None:
        check_name("the application", application)
        self._about = _About(FORMAT, application, str(task), origin)
        self.path = Path(state_dir) / application / str(task)
        self._stores: dict[str, Store] = {}
        self._lock: int | None = None
        with self._naming("opened"):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self.path)
            try:
                self._check_about()
                self._offsets = self._read_offsets()
            except BaseException:
                self.close()
                raise

    def open_store(self, name: str, kind: str = "rocksdb") -> Store:
        """Open a store of the task; `close` closes it.

        State that has no checkpoint or cannot be read is dropped, with a WARNING.

        Args:
            name: Its name in the program.
            kind: "rocksdb", or "memory" for a store that is restored at each start.

        Raises:
            MissingExtraError: `rocksdict` is not installed.
            StateInUseError: The store is already open.
            StateDiskFullError: The disk is full.
            StateError: The database cannot be opened for another reason.
        """
        check_name("a store", name)
        if name in self._stores:
            raise StateInUseError(f"store {name} of {self.path} is already open")
        if kind == "memory":
            store: Store = MemoryStore(name)
        elif kind == "rocksdb":
            store = self._open_rocks(name)
        else:
            raise ConfigError(f'kind of store {kind!r} is neither "rocksdb" nor "memory"')
        self._stores[name] = store
        return store

    def offsets(self) -> dict[str, int]:
        """Return the next changelog offset needed by each persistent store.

        A missing store must be restored from the start.
        """
        return dict(self._offsets)

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Flush all open stores, then write the checkpoint; in this order.

        Args:
            offsets: For each store, the offset after its last change that the changelog topic has
                acknowledged, or that was restored. Stores that are left out keep their offset.

        Raises:
            StateDiskFullError: The disk is full; the last checkpoint stays valid.
            StateError: A store or the file cannot be written; the last checkpoint stays valid.
            LocalProtocolError: A store is not open.
        """
        unknown = offsets.keys() - self._stores.keys()
        if unknown:
            raise LocalProtocolError(f"{self.path}: stores {sorted(unknown)} are not open")
        for store in self._stores.values():
            store.flush()
        persistent = {name for name, store in self._stores.items() if store.is_persistent}
        fresh = {name: offset for name, offset in offsets.items() if name in persistent}
        self._write_offsets(self._offsets | fresh)

    def drop_store(self, name: str, reason: str) -> None:
        """Remove a closed store's state, so that it is restored from the start.

        Args:
            name: Its name in the program.
            reason: The reason, for the log.

        Raises:
            StateInUseError: The store is open.
            StateError: It cannot be removed.
        """
        if name in self._stores:
            raise StateInUseError(f"store {name} of {self.path} is open and cannot be dropped")
        log.warning(
            "%s: the state of store %s is dropped and must be restored from the start of its"
            " changelog: %s",
            self.path,
            name,
            reason,
        )
        # Remove the checkpoint first, because state without a checkpoint is dropped anyway.
        self._write_offsets({key: each for key, each in self._offsets.items() if key != name})
        with self._naming("removed"):
            self._remove(self._database(name))

    def close_store(self, name: str) -> None:
        """Close a store if it is open; unflushed changes are dropped."""
        if store := self._stores.pop(name, None):
            store.close()

    def close(self) -> None:
        """Close the stores and release the lock; unflushed changes are dropped."""
        try:
            for name in list(self._stores):
                self.close_store(name)
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def __enter__(self) -> Self:
        """Return the directory itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the directory."""
        self.close()

    # ------------------------------------------------------------------------------------- stores

    def _open_rocks(self, name: str) -> Store:
        # Only applications with a persistent store need the library.
        from kohort.streams.stores.rocks import RocksStore

        database = self._database(name)
        if database.exists() and name not in self._offsets:
            self.drop_store(name, "it has no checkpoint")
        try:
            with self._naming("made"):
                database.parent.mkdir(exist_ok=True)
            return RocksStore(name, database)
        except DamagedStateError as error:
            self.drop_store(name, str(error))
            return RocksStore(name, database)

    def _database(self, name: str) -> Path:
        return self.path / "stores" / name

    # -------------------------------------------------------------------------------------- files

    def _check_about(self) -> None:
        try:
            found = self._read("about.json", _About)
        except DamagedStateError as error:
            log.warning("%s: about.json is damaged (%s); the state is dropped", self.path, error)
            self._forget_all()
            found = None
        if found is None:
            self._write("about.json", self._about)
        elif found.format > FORMAT:
            raise NewerStateError(
                f"{self.path} has format {found.format}, this version of kohort knows {FORMAT}:"
                " run the newer version, or remove the directory to have the state restored"
            )
        elif (found.application, found.task) != (self._about.application, self._about.task):
            raise ForeignStateError(
                f"{self.path} has the state of task {found.task} of {found.application}, not of"
                f" task {self._about.task} of {self._about.application}; choose another state_dir"
            )
        else:
            self._check_origin(found.origin)

    def _check_origin(self, before: str) -> None:
        """Drop state from before a reset: its offsets belong to deleted changelogs."""
        now = self._about.origin
        if before and now and before != now:
            log.warning(
                "%s has state from before application %s was reset or its control topic was"
                " recreated; it is dropped, and restored from the present changelogs",
                self.path,
                self._about.application,
            )
            self._forget_all()
        if now and before != now:
            self._write("about.json", self._about)

    def _read_offsets(self) -> dict[str, int]:
        try:
            found = self._read("checkpoint.json", _Checkpoint)
        except DamagedStateError as error:
            log.warning(
                "%s: the checkpoint is damaged (%s); the state is dropped and must be restored"
                " from the start of the changelog",
                self.path,
                error,
            )
            return {}
        return {} if found is None else found.offsets

    def _write_offsets(self, offsets: dict[str, int]) -> None:
        self._write("checkpoint.json", _Checkpoint(_crc(offsets), offsets))
        self._offsets = offsets

    def _forget_all(self) -> None:
        with suppress(FileNotFoundError):
            (self.path / "checkpoint.json").unlink()
        self._remove(self.path / "stores")

    def _remove(self, path: Path) -> None:
        if path.exists():
            shutil.rmtree(path)

    def _read(self, name: str, kind: type[_File]) -> _File | None:
        """Return a file's content, or None if it is missing.

        Raises:
            DamagedStateError: The content is invalid.
        """
        with self._naming("read"):
            try:
                with (self.path / name).open("rb") as file:
                    content = file.read(_LARGEST_FILE + 1)
            except FileNotFoundError:
                return None
        try:
            found = msgspec.json.decode(content[:_LARGEST_FILE], type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DamagedStateError(f"{len(content)} bytes: {error}") from None
        if isinstance(found, _Checkpoint):
            _check(found)
        return found

    def _write(self, name: str, content: _About | _Checkpoint) -> None:
        """Replace a whole file durably."""
        with self._naming("written"):
            fresh = self.path / f"{name}.new"
            with _opened(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
                rest = memoryview(msgspec.json.encode(content))
                while rest:
                    rest = rest[os.write(file, rest) :]
                os.fsync(file)
            fresh.replace(self.path / name)
            with _opened(self.path, os.O_RDONLY | os.O_DIRECTORY) as folder:
                os.fsync(folder)

    def _naming(self, done: str) -> AbstractContextManager[None]:
        return _naming(self.path, done)


@contextmanager
def hold_state(state_dir: Path, application: str) -> Iterator[None]:
    """Lock an application's state while an instance runs.

    Raises:
        StateInUseError: Another instance uses it.
        StateError: The file system refuses; the subclass or the message gives the reason.
    """
    path = Path(state_dir) / application
    with _naming(path, "opened"):
        path.mkdir(parents=True, exist_ok=True)
        lock = _locked(path)
    try:
        yield
    finally:
        os.close(lock)


def _locked(path: Path) -> int:
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise StateInUseError(
            f"{path} is in use by another process or by another task or instance of this one; give"
            " each instance a state_dir of its own"
        ) from None
    return lock


@contextmanager
def _naming(path: Path, done: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        advice = "make room on it, or choose another state_dir" if full else "see its cause"
        kind = StateDiskFullError if full else StateError
        raise kind(f"{path} cannot be {done}: {error}; {advice}") from error


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    file = os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        yield file
    finally:
        os.close(file)


def _crc(offsets: Mapping[str, int]) -> int:
    return zlib.crc32(msgspec.json.encode(sorted(offsets.items())))


def _check(found: _Checkpoint) -> None:
    if found.crc != _crc(found.offsets):
        raise DamagedStateError("its checksum is wrong")
    if any(offset < 0 for offset in found.offsets.values()):
        raise DamagedStateError("it has an offset below 0")
