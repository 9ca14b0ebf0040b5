"""Both kinds of store do what a dictionary does, layer by layer, and keep what was flushed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kohort.errors import LocalProtocolError
from kohort.streams.errors import (
    DamagedStateError,
    StateDiskFullError,
    StateInUseError,
    StoreClosedError,
)
from kohort.streams.stores import MemoryStore, Store
from kohort.streams.stores.rocks import RocksStore

KEYS = st.binary(max_size=3) | st.sampled_from([b"\xff", b"\xff\xff", b"a\xff", b"a\xff\x00", b"b"])
VALUES = st.binary(max_size=3)


class Stores(RuleBasedStateMachine):
    """A store in memory and one in RocksDB, beside a model of three dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.memory = MemoryStore("m")
        self.rocks = RocksStore("r", self.folder / "r")
        self.flushed: dict[bytes, bytes] = {}
        self.drained: dict[bytes, bytes | None] = {}
        self.new: dict[bytes, bytes | None] = {}
        self.at_begin: dict[bytes, bytes | None] | None = None

    @property
    def both(self) -> tuple[Store, Store]:
        return self.memory, self.rocks

    def visible(self) -> list[tuple[bytes, bytes]]:
        merged = self.flushed | self.drained | self.new
        return sorted((key, value) for key, value in merged.items() if value is not None)

    @rule(key=KEYS, value=VALUES)
    def put(self, key: bytes, value: bytes) -> None:
        for store in self.both:
            store.put(key, value)
        self.new[key] = value

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        for store in self.both:
            store.delete(key)
        self.new[key] = None

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        for store in self.both:
            assert store.get(key) == dict(self.visible()).get(key)

    @rule(prefix=KEYS)
    def items(self, prefix: bytes) -> None:
        wanted = [item for item in self.visible() if item[0].startswith(prefix)]
        for store in self.both:
            assert list(store.items(prefix)) == wanted

    @rule(low=KEYS, high=KEYS)
    def scan(self, low: bytes, high: bytes) -> None:
        wanted = [item for item in self.visible() if low <= item[0] < high]
        for store in self.both:
            assert list(store.scan(low, high)) == wanted

    @rule(key=KEYS, value=VALUES)
    def change_while_iterating(self, key: bytes, value: bytes) -> None:
        before = self.visible()
        iterators = [store.items() for store in self.both]
        self.put(key, value)
        for iterator in iterators:
            assert list(iterator) == before

    @rule()
    def begin(self) -> None:
        for store in self.both:
            store.begin()
        self.at_begin = dict(self.new)

    @precondition(lambda self: self.at_begin is not None)
    @rule()
    def undo(self) -> None:
        for store in self.both:
            store.undo()
        assert self.at_begin is not None
        self.new = dict(self.at_begin)

    @rule()
    def changes(self) -> None:
        for store in self.both:
            assert dict(store.changes()) == self.new
        self.drained |= self.new
        self.new = {}
        self.at_begin = None

    @rule()
    def flush(self) -> None:
        for store in self.both:
            store.flush()
        for key, value in self.drained.items():
            if value is None:
                self.flushed.pop(key, None)
            else:
                self.flushed[key] = value
        self.drained = {}

    @precondition(lambda self: not self.new and not self.drained)
    @rule(changes=st.lists(st.tuples(KEYS, st.none() | VALUES), max_size=5))
    def restore(self, changes: list[tuple[bytes, bytes | None]]) -> None:
        for store in self.both:
            store.restore(iter(changes))
        self.drained |= changes
        self.flush()

    @precondition(lambda self: self.new or self.drained)
    @rule()
    def restore_is_refused(self) -> None:
        for store in self.both:
            with pytest.raises(LocalProtocolError, match="not flushed"):
                store.restore([])

    @rule()
    def reopen(self) -> None:
        """What was not flushed is gone; a store in memory is restored from what the other has."""
        self.rocks.close()
        self.memory.close()
        self.rocks = RocksStore("r", self.folder / "r")
        self.memory = MemoryStore("m")
        self.memory.restore(self.rocks.items())
        self.drained, self.new, self.at_begin = {}, {}, None

    @invariant()
    def all_is_as_it_should_be(self) -> None:
        for store in self.both:
            assert list(store.scan()) == self.visible()
            assert store.count == len(self.visible())
            assert store.pending == len(self.new) + len(self.drained)

    def teardown(self) -> None:
        self.rocks.close()
        shutil.rmtree(self.folder)


TestStores = Stores.TestCase
TestStores.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)


@pytest.fixture(params=["memory", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = MemoryStore("s") if request.param == "memory" else RocksStore("s", tmp_path / "s")
    yield made
    made.close()


def test_nothing_but_bytes_is_taken(store: Store) -> None:
    for key, value in (("a", b"1"), (b"a", "1"), (b"a", None), (bytearray(b"a"), b"1")):
        with pytest.raises(TypeError, match="takes bytes"):
            store.put(key, value)  # type: ignore[arg-type]  # what the test is about
    with pytest.raises(TypeError, match="takes bytes"):
        store.delete("a")  # type: ignore[arg-type]  # what the test is about
    assert store.count == 0


def test_a_closed_store_says_so(store: Store) -> None:
    store.restore([(b"a", b"1"), (b"b", b"2")])
    store.close()
    store.close()
    for use in (lambda: store.get(b"a"), lambda: store.items(), lambda: store.restore([])):
        with pytest.raises(StoreClosedError):
            list(use() or [])


def test_what_is_not_drained_is_not_flushed(tmp_path: Path) -> None:
    """The backend never has what the changelog has not acknowledged."""
    store = RocksStore("s", tmp_path / "s")
    store.put(b"a", b"1")
    assert store.changes() == [(b"a", b"1")]
    store.put(b"a", b"2")
    store.put(b"b", b"2")
    store.flush()
    assert list(store.items()) == [(b"a", b"2"), (b"b", b"2")]
    store.close()
    store = RocksStore("s", tmp_path / "s")
    assert list(store.items()) == [(b"a", b"1")]
    store.close()


def test_a_scan_has_what_came_after_the_last_drain(store: Store) -> None:
    store.put(b"a", b"1")
    store.changes()
    store.put(b"a", b"2")
    assert list(store.items()) == [(b"a", b"2")]


def test_a_key_that_was_changed_twice_is_taken_back_to_what_it_was(store: Store) -> None:
    store.put(b"a", b"1")
    store.begin()
    store.put(b"a", b"2")
    store.put(b"a", b"3")
    store.undo()
    assert store.get(b"a") == b"1"


def test_the_last_value_of_a_key_goes_to_the_changelog(store: Store) -> None:
    for number in range(3):
        store.put(b"a", b"%d" % number)
    store.put(b"b", b"1")
    store.delete(b"b")
    assert store.changes() == [(b"a", b"2"), (b"b", None)]
    assert store.changes() == []


def test_an_iterator_does_not_keep_the_database_open(tmp_path: Path) -> None:
    store = RocksStore("s", tmp_path / "s")
    store.restore((b"%d" % number, b"") for number in range(10))
    items = store.items()
    next(items)
    store.close()
    again = RocksStore("s", tmp_path / "s")
    with pytest.raises(StoreClosedError, match="was closed while"):
        next(items)
    again.close()


def test_a_database_that_is_open_is_refused(tmp_path: Path) -> None:
    store = RocksStore("s", tmp_path / "s")
    with pytest.raises(StateInUseError, match="s"):
        RocksStore("s", tmp_path / "s")
    store.close()


@pytest.mark.parametrize("kind", ["MANIFEST", "CURRENT"])
def test_a_damaged_database_is_named(tmp_path: Path, kind: str) -> None:
    store = RocksStore("s", tmp_path / "s")
    store.put(b"a", b"1")
    store.changes()
    store.flush()
    store.close()
    for path in (tmp_path / "s").glob(f"{kind}*"):
        path.write_bytes(b"not what it was")
    with pytest.raises(DamagedStateError, match="cannot be opened"):
        RocksStore("s", tmp_path / "s")


def test_a_full_disk_has_its_name(tmp_path: Path) -> None:
    store = RocksStore("s", tmp_path / "s")
    with pytest.raises(StateDiskFullError, match="No space left"), store._naming("written"):
        raise Exception("IO error: No space left on device: While appending to file: 4.log")
    store.close()


NO_ROOM = """
import resource, signal, sys
from pathlib import Path
from kohort.streams.errors import StateError
from kohort.streams.stores.rocks import RocksStore

store = RocksStore("s", Path(sys.argv[1]))
store.put(b"before", b"1")
store.changes()
store.flush()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
store.put(b"large", bytes(100_000))
store.changes()
try:
    store.flush()
except StateError as error:
    print(error)
assert store.get(b"large") == bytes(100_000)
"""


def test_a_write_that_the_disk_refuses_is_an_error_and_loses_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_ROOM, str(tmp_path / "s")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "store s in" in done.stdout
    assert "cannot be written: IO error" in done.stdout
    store = RocksStore("s", tmp_path / "s")
    assert store.get(b"before") == b"1"
    store.close()
