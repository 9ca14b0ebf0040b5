"""The state directory: who may use it, what survives, and what a crash leaves."""

from __future__ import annotations

import errno
import json
import logging
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import ConfigError, LocalProtocolError
from kohort.extras import MissingExtraError
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import (
    BuildError,
    ForeignStateError,
    NewerStateError,
    StateDiskFullError,
    StateError,
    StateInUseError,
)
from kohort.streams.runtime.directory import FORMAT, TaskDirectory
from tests.broker.full_disks import full_disk

TASK = Task(0, 3)


def filled(state_dir: Path, offset: int = 7) -> Path:
    """Make a directory with one key in the store "counts" and a checkpoint of it."""
    with TaskDirectory(state_dir, "app", TASK) as directory:
        store = directory.open_store("counts")
        store.restore([(b"a", b"1")])
        directory.commit({"counts": offset})
        return directory.path


def test_state_and_offset_survive(tmp_path: Path) -> None:
    path = filled(tmp_path)
    assert path == tmp_path / "app" / "0_3"
    with TaskDirectory(tmp_path, "app", TASK) as directory:
        assert directory.offsets() == {"counts": 7}
        assert list(directory.open_store("counts").items()) == [(b"a", b"1")]


def test_what_was_not_committed_is_gone(tmp_path: Path) -> None:
    filled(tmp_path)
    with TaskDirectory(tmp_path, "app", TASK) as directory:
        store = directory.open_store("counts")
        store.put(b"b", b"2")
        store.changes()
    with TaskDirectory(tmp_path, "app", TASK) as directory:
        assert list(directory.open_store("counts").items()) == [(b"a", b"1")]


def test_a_store_in_memory_has_no_checkpoint(tmp_path: Path) -> None:
    with TaskDirectory(tmp_path, "app", TASK) as directory:
        directory.open_store("small", "memory").restore([(b"a", b"1")])
        directory.commit({"small": 9})
        assert directory.offsets() == {}


def test_an_offset_that_is_left_out_is_kept(tmp_path: Path) -> None:
    with TaskDirectory(tmp_path, "app", TASK) as directory:
        directory.open_store("a")
        directory.open_store("b")
        directory.commit({"a": 1, "b": 2})
        directory.commit({"b": 3})
        assert directory.offsets() == {"a": 1, "b": 3}
        with pytest.raises(LocalProtocolError, match="'c'"):
            directory.commit({"c": 4})


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with TaskDirectory(tmp_path, "app", TASK):
        with pytest.raises(StateInUseError, match="state_dir of its own"):
            TaskDirectory(tmp_path, "app", TASK)
        TaskDirectory(tmp_path, "app", Task(0, 4)).close()
    TaskDirectory(tmp_path, "app", TASK).close()


def test_another_process_is_refused_until_it_is_killed(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    with holder:
        try:
            assert holder.stdout.readline() == b"open\n"
            with pytest.raises(StateInUseError, match="another process"):
                TaskDirectory(tmp_path, "app", TASK)
        finally:
            holder.kill()
    TaskDirectory(tmp_path, "app", TASK).close()


HOLDER = """
import sys
from kohort.streams.assignment.tasks import Task
from kohort.streams.runtime.directory import TaskDirectory

with TaskDirectory(sys.argv[1], "app", Task(0, 3)):
    print("open", flush=True)
    sys.stdin.read()
"""


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path)
    (tmp_path / "other").mkdir()
    path.rename(tmp_path / "other" / "0_3")
    with pytest.raises(ForeignStateError, match="task 0_3 of app, not of task 0_3 of other"):
        TaskDirectory(tmp_path, "other", TASK)
    (tmp_path / "other" / "0_3").rename(tmp_path / "app" / "0_4")
    with pytest.raises(ForeignStateError, match="choose another state_dir"):
        TaskDirectory(tmp_path, "app", Task(0, 4))


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path)
    about = json.loads((path / "about.json").read_text())
    (path / "about.json").write_text(json.dumps(about | {"format": FORMAT + 1, "more": []}))
    with pytest.raises(NewerStateError, match="run the newer version, or remove the directory"):
        TaskDirectory(tmp_path, "app", TASK)


def test_names_that_lead_elsewhere_are_refused(tmp_path: Path) -> None:
    for name in ("../app", "..", ".", "", "a/b", "a" * 101):
        with pytest.raises(BuildError, match="cannot have the name"):
            TaskDirectory(tmp_path, name, TASK)
    with TaskDirectory(tmp_path, "app", TASK) as directory:
        with pytest.raises(BuildError, match="a store cannot have the name"):
            directory.open_store("../x")
        with pytest.raises(ConfigError, match='"rocksdb" nor "memory"'):
            directory.open_store("x", "redis")


def test_a_store_is_opened_once(tmp_path: Path) -> None:
    with TaskDirectory(tmp_path, "app", TASK) as directory:
        directory.open_store("counts")
        with pytest.raises(StateInUseError, match="already open"):
            directory.open_store("counts")
        with pytest.raises(StateInUseError, match="cannot be dropped"):
            directory.drop_store("counts", "a test wants it")
        directory.close_store("counts")
        directory.open_store("counts")


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot be opened"):
        TaskDirectory(tmp_path / "file", "app", TASK)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_on_a_full_disk_the_last_checkpoint_stands(tmp_path: Path, code: int) -> None:
    filled(tmp_path)
    with TaskDirectory(tmp_path, "app", TASK) as directory:
        store = directory.open_store("counts")
        store.put(b"a", b"2")
        store.changes()
        with full_disk(code), pytest.raises(StateDiskFullError, match="make room on it"):
            directory.commit({"counts": 8})
        assert directory.offsets() == {"counts": 7}
        directory.commit({"counts": 8})
    with TaskDirectory(tmp_path, "app", TASK) as directory:
        assert directory.offsets() == {"counts": 8}
        assert directory.open_store("counts").get(b"a") == b"2"


# ------------------------------------------------------------------------------- damaged files


def restored_from_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, "kohort.streams"),
        TaskDirectory(tmp_path, "app", TASK) as directory,
    ):
        assert directory.offsets() == {}
        assert list(directory.open_store("counts").items()) == []
    assert "restored from the start" in caplog.text


def test_state_without_a_checkpoint_is_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (filled(tmp_path) / "checkpoint.json").unlink()
    restored_from_the_start(tmp_path, caplog)
    assert "store counts is dropped" in caplog.text


def test_a_store_without_a_checkpoint_is_dropped_beside_one_that_has_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with TaskDirectory(tmp_path, "app", TASK) as directory:
        for name in ("counts", "sums"):
            directory.open_store(name).restore([(b"a", b"1")])
        directory.commit({"counts": 7})
    with (
        caplog.at_level(logging.WARNING, "kohort.streams"),
        TaskDirectory(tmp_path, "app", TASK) as directory,
    ):
        assert list(directory.open_store("counts").items()) == [(b"a", b"1")]
        assert list(directory.open_store("sums").items()) == []
        assert directory.offsets() == {"counts": 7}
    assert "store sums is dropped" in caplog.text


def test_a_flipped_digit_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = filled(tmp_path) / "checkpoint.json"
    path.write_text(path.read_text().replace('"counts":7', '"counts":9'))
    restored_from_the_start(tmp_path, caplog)
    assert "checksum is wrong" in caplog.text


def test_a_damaged_database_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (filled(tmp_path) / "stores" / "counts" / "CURRENT").write_bytes(b"")
    with (
        caplog.at_level(logging.WARNING, "kohort.streams"),
        TaskDirectory(tmp_path, "app", TASK) as directory,
    ):
        assert list(directory.open_store("counts").items()) == []
        assert directory.offsets() == {}
    assert "store counts is dropped" in caplog.text


def test_a_damaged_about_file_drops_the_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (filled(tmp_path) / "about.json").write_bytes(b"{")
    with (
        caplog.at_level(logging.WARNING, "kohort.streams"),
        TaskDirectory(tmp_path, "app", TASK) as directory,
    ):
        assert directory.offsets() == {}
        assert directory.open_store("counts").count == 0
    assert "about.json is damaged" in caplog.text


JSONLIKE = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.dictionaries(st.sampled_from(["crc", "offsets", "x"]), inner),
    max_leaves=6,
)


def test_any_bytes_are_a_checkpoint_or_none(tmp_path: Path) -> None:
    path = filled(tmp_path) / "checkpoint.json"

    @given(content=st.binary(max_size=50) | JSONLIKE.map(lambda each: json.dumps(each).encode()))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        with TaskDirectory(tmp_path, "app", TASK) as directory:
            assert directory.offsets() == {}

    check()


# --------------------------------------------------------------------------------------- crashes

# Commits three times; the process is killed in the last one, at the moment that is asked for.
KILLED = """
import os, signal, sys
from kohort.streams.assignment.tasks import Task
from kohort.streams.runtime.directory import TaskDirectory

moment = sys.argv[2]

class Killed(TaskDirectory):
    def _write_offsets(self, offsets):
        if moment == "flushed" and offsets["counts"] == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        super()._write_offsets(offsets)

directory = Killed(sys.argv[1], "app", Task(0, 3))
store = directory.open_store("counts")
for offset in (1, 2, 3):
    store.put(b"a", b"%d" % offset)
    store.put(b"at %d" % offset, b"")
    store.changes()
    if moment == "drained" and offset == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    directory.commit({"counts": offset})
os.kill(os.getpid(), signal.SIGKILL)
"""
CHANGELOG = [[(b"a", b"%d" % offset), (b"at %d" % offset, b"")] for offset in (1, 2, 3)]


@pytest.mark.parametrize("moment", ["drained", "flushed", "committed"])
def test_a_killed_process_repeats_and_loses_nothing(tmp_path: Path, moment: str) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), moment]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with TaskDirectory(tmp_path, "app", TASK) as directory:
        store = directory.open_store("counts")
        (offset,) = directory.offsets().values()
        assert offset == (3 if moment == "committed" else 2)
        has = dict(store.items())
        assert has[b"a"] == (b"2" if moment == "drained" else b"3")
        for changes in CHANGELOG[offset:]:
            store.restore(changes)
        assert dict(store.items()) == {key: value for each in CHANGELOG for key, value in each}


def test_without_the_library_the_line_to_type_is_named(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "rocksdict", None)
        patch.delitem(sys.modules, "kohort.streams.stores.rocks", raising=False)
        with (
            TaskDirectory(tmp_path, "app", TASK) as directory,
            pytest.raises(MissingExtraError, match=r"pip install 'kohort\[streams\]'"),
        ):
            directory.open_store("counts")


@pytest.mark.parametrize(
    ("before", "now", "is_kept"),
    [("one", "one", True), ("one", "two", False), ("", "two", True), ("one", "", True)],
)
def test_state_from_before_a_reset_is_dropped(
    tmp_path: Path, before: str, now: str, is_kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with TaskDirectory(tmp_path, "app", TASK, before) as directory:
        directory.open_store("n").restore([(b"k", b"v")])
        directory.commit({"n": 7})
    for _ in range(2):  # what was dropped is dropped once
        with TaskDirectory(tmp_path, "app", TASK, now) as directory:
            assert directory.offsets() == ({"n": 7} if is_kept else {})
            assert directory.open_store("n").get(b"k") == (b"v" if is_kept else None)
    warned = [each for each in caplog.messages if "before application app was reset" in each]
    assert len(warned) == (0 if is_kept else 1)
