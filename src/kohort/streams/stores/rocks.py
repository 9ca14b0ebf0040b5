"""A store in RocksDB: for state that outlives the process and may be larger than memory."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path

from kohort.extras import needed_by
from kohort.streams.errors import (
    DamagedStateError,
    StateDiskFullError,
    StateError,
    StateInUseError,
    StoreClosedError,
)
from kohort.streams.stores.store import Change, Store

with needed_by("a RocksDB store"):
    import rocksdict

_MIB = 1 << 20
_BATCH = 10_000  # keys restored per write
# A process may have dozens of stores; they share one block cache.
_BLOCK_CACHE = 64 * _MIB
_WRITE_BUFFER = 16 * _MIB
_OPEN_FILES = 256


class RocksStore(Store):
    """A store in its own RocksDB database.

    Args:
        name: Its name in the program.
        path: Its directory; created if missing.

    Raises:
        DamagedStateError: RocksDB cannot read its files.
        StateInUseError: The database is open elsewhere.
        StateDiskFullError: The disk is full.
        StateError: It cannot be opened for another reason, given in the message.
    """

    is_persistent = True

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name)
        self.path = path
        self._database: rocksdict.Rdict | None = None
        self._has_unlogged = False  # whether restored writes wait for a memtable flush
        self._cursors: weakref.WeakSet[_Cursor] = weakref.WeakSet()
        with self._naming("opened"):
            self._database = rocksdict.Rdict(str(path), _options())
        self._logged = rocksdict.WriteOptions()
        self._logged.sync = True
        self._unlogged = rocksdict.WriteOptions()
        # an attribute, contrary to the stubs of rocksdict
        setattr(self._unlogged, "disable_wal", True)  # noqa: B010 - for the type checker

    def close(self) -> None:
        """Close the database; unflushed changes are dropped."""
        # An open iterator would keep the database open, and thus locked for the next owner.
        for cursor in list(self._cursors):
            cursor.close()
        if self._database is not None:
            with self._naming("closed"):
                self._database.close()
            self._database = None
        self._new.clear()
        self._drained.clear()

    def flush(self) -> None:
        """Write drained and restored changes durably; see `Store.flush`."""
        super().flush()
        if self._has_unlogged:
            with self._naming("flushed"):
                self._open().flush()
            self._has_unlogged = False

    def _read(self, key: bytes) -> bytes | None:
        database = self._database or self._open()
        try:  # without the context manager, which takes as long as RocksDB itself
            found: bytes | None = database.get(key)
        except Exception as error:
            raise self._named(error, "read") from error
        return found

    def _scan(self, low: bytes, high: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        options = rocksdict.ReadOptions()
        if high is not None:
            options.set_iterate_upper_bound(high)
        with self._naming("read"):
            cursor = _Cursor(self, self._open().items(from_key=low, read_opt=options))
        self._cursors.add(cursor)
        return cursor

    def _write(self, changes: dict[bytes, bytes | None]) -> None:
        if changes:
            self._write_batch(changes.items(), self._logged)

    def _load(self, changes: Iterable[Change]) -> None:
        """Write in large batches without the write-ahead log; the next flush makes them durable."""
        self._open()
        rest = iter(changes)
        while batch := list(islice(rest, _BATCH)):
            self._has_unlogged = True
            self._write_batch(batch, self._unlogged)

    def _write_batch(self, changes: Iterable[Change], options: rocksdict.WriteOptions) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in changes:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        with self._naming("written"):
            self._open().write(batch, options)

    def _open(self) -> rocksdict.Rdict:
        if self._database is None:
            raise StoreClosedError(f"store {self.name} is closed")
        return self._database

    @contextmanager
    def _naming(self, done: str) -> Iterator[None]:
        """Translate RocksDB errors, which are plain exceptions, into this package's errors."""
        try:
            yield
        except StateError:
            raise
        except Exception as error:
            raise self._named(error, done) from error

    def _named(self, error: Exception, done: str) -> StateError:
        text = str(error)
        kind = next((kind for words, kind in _KINDS if words in text), StateError)
        return kind(f"store {self.name} in {self.path} cannot be {done}: {text}")


class _Cursor(Iterator[tuple[bytes, bytes]]):
    """An iterator that ends when its store closes, instead of keeping the database open."""

    def __init__(self, store: RocksStore, items: Iterator[tuple[object, object]]) -> None:
        self._store = store.name
        self._items: Iterator[tuple[object, object]] | None = items

    def __next__(self) -> tuple[bytes, bytes]:
        if self._items is None:
            raise StoreClosedError(f"store {self._store} was closed while it was iterated over")
        return next(self._items)  # type: ignore[return-value]  # raw mode: bytes, nothing else

    def close(self) -> None:
        self._items = None


# Messages of RocksDB, and the errors they are translated to.
_KINDS: tuple[tuple[str, type[StateError]], ...] = (
    ("No space left", StateDiskFullError),
    ("Disk quota exceeded", StateDiskFullError),
    ("lock hold by current process", StateInUseError),
    ("Resource temporarily unavailable", StateInUseError),
    ("While lock file", StateInUseError),
    ("Corruption", DamagedStateError),
    ("does not exist (create_if_missing is false)", DamagedStateError),
)


@cache
def _block_cache() -> rocksdict.Cache:
    return rocksdict.Cache(_BLOCK_CACHE)


def _options() -> rocksdict.Options:
    blocks = rocksdict.BlockBasedOptions()
    blocks.set_block_cache(_block_cache())
    blocks.set_bloom_filter(10, block_based=False)
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    options.set_write_buffer_size(_WRITE_BUFFER)
    options.set_max_open_files(_OPEN_FILES)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(_MIB)
    # A crash leaves a torn write-ahead log; the torn part was not acknowledged.
    options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.tolerate_corrupted_tail_records())
    return options
