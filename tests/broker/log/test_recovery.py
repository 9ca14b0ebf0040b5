"""Recovery of a log after a crash: torn tails, flipped bytes, a full disk, SIGKILL."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kohort.broker.log.config import LogConfig
from kohort.broker.log.partition_log import PartitionLog
from kohort.errors import ErrorCode, KafkaError
from tests.broker.log.batches import batch, opened, records_of
from tests.broker.log.crashes import Crash, dying_after

BATCHES = 5
# The bytes that link a batch to its neighbours: base offset, length, magic, last offset.
CHAIN = {*range(12), 16, *range(23, 27)}


@pytest.fixture(params=["closed in order", "crashed"])
def original(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a log of five batches with two records each, in one file."""
    log = opened(tmp_path / "original")
    for number in range(BATCHES):
        log.append(batch(b"%d-a" % number, b"%d-b" % number), 0)
    if request.param == "crashed":
        log.abandon()
    else:
        log.close()
    return tmp_path / "original"


def ends_of(content: bytes) -> list[int]:
    size = len(content) // BATCHES
    return [size * number for number in range(1, BATCHES + 1)]


@contextmanager
def changed(original: Path, content: bytes) -> Iterator[PartitionLog]:
    """Open a copy of the log whose file has different content."""
    copy = original.parent / "copy"
    shutil.copytree(original, copy)
    next(copy.glob("*.log")).write_bytes(content)
    log = opened(copy)
    yield log
    log.close()
    shutil.rmtree(copy)


def test_a_tail_cut_at_any_byte_loses_only_what_is_torn(original: Path) -> None:
    content = next(original.glob("*.log")).read_bytes()
    ends = ends_of(content)
    for size in range(ends[2], len(content)):
        with changed(original, content[:size]) as log:
            whole = sum(end <= size for end in ends)
            assert log.log_end_offset == 2 * whole
            assert [r.offset for r in records_of(log)] == list(range(2 * whole))
            assert log.cut_bytes == size - ends[whole - 1]
            assert log.append(batch(b"next"), 0).base_offset == 2 * whole


@pytest.mark.parametrize("flip", [0x01, 0x55, 0x80, 0xFF])
@pytest.mark.parametrize("original", ["crashed"], indirect=True)
def test_any_flipped_byte_of_the_tail_is_cut_off_after_a_crash(original: Path, flip: int) -> None:
    content = next(original.glob("*.log")).read_bytes()
    ends = ends_of(content)
    for at in range(ends[2], len(content)):
        damaged = bytearray(content)
        damaged[at] ^= flip
        with changed(original, bytes(damaged)) as log:
            whole = sum(end <= at for end in ends)
            assert [r.offset for r in records_of(log)] == list(range(2 * whole))
            assert log.cut_bytes == len(content) - ends[whole - 1]


@pytest.mark.parametrize("flip", [0x01, 0x80])
@pytest.mark.parametrize("original", ["closed in order"], indirect=True)
def test_any_flipped_byte_after_a_shutdown_in_order_costs_no_byte(
    original: Path, flip: int
) -> None:
    """The headers show the end of the log: a batch with damaged records keeps its place."""
    content = next(original.glob("*.log")).read_bytes()
    size, damaged = len(content) // BATCHES, bytearray(content)
    for at in (*range(size), *range(3 * size, len(content))):
        damaged[at] ^= flip
        with changed(original, bytes(damaged)) as log:
            stays = at // size if at % size in CHAIN else BATCHES
            assert (log.log_end_offset, log.cut_bytes) == (2 * stays, len(content) - stays * size)
            kept = [path.read_bytes() for path in log.directory.glob("*.cut-at-*")]
            assert kept == ([damaged[stays * size :]] if stays < BATCHES else [])
            assert log.append(batch(b"next"), 0).base_offset == 2 * stays
        damaged[at] ^= flip


def test_after_a_shutdown_in_order_only_the_tail_is_looked_at(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for number in range(100):
        log.append(batch(b"%d" % number * 500), 0)
    log.close()
    path = next(tmp_path.glob("*.log"))
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1
    path.write_bytes(content)
    trusted = opened(tmp_path)
    assert (trusted.cut_bytes, trusted.log_end_offset) == (0, 100)
    trusted.append(batch(b"now it is in use"), 0)
    trusted.abandon()
    assert opened(tmp_path).log_end_offset < 30


def test_an_older_mark_does_not_speak_for_what_was_written_since(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for _ in range(10):
        log.append(batch(b"v" * 5_000), 0)
    log.close()
    path = next(tmp_path.glob("*.log"))
    content = path.read_bytes()
    path.write_bytes(content[: 9 * len(content) // 10])
    shorter = opened(tmp_path)
    shorter.append(batch(b"w" * 5_000), 0)  # as long as the lost one
    shorter.abandon()
    damaged = bytearray(path.read_bytes())
    assert len(damaged) == len(content)
    damaged[len(content) // 4] ^= 1
    path.write_bytes(damaged)
    again = opened(tmp_path)
    assert again.log_end_offset == 2
    again.close()


@pytest.mark.parametrize("position", [-1, -(2**31), 1, 2**31 - 1])
def test_a_damaged_entry_near_the_end_of_an_index_costs_nothing(
    tmp_path: Path, position: int
) -> None:
    log = opened(tmp_path)
    for _ in range(4):
        log.append(batch(b"v" * 5_000), 0)
    log.close()
    index = next(tmp_path.glob("*.index"))
    entries = bytearray(index.read_bytes())
    assert len(entries) == 4 * 8
    entries[20:24] = position.to_bytes(4, "big", signed=True)
    index.write_bytes(entries)
    again = opened(tmp_path)
    assert again.cut_bytes == 0
    assert [record.offset for record in records_of(again)] == [0, 1, 2, 3]
    again.close()


def test_a_death_at_any_step_of_appending_and_rolling_loses_nothing_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = LogConfig(segment_bytes=300)
    for steps in range(400):
        path = tmp_path / str(steps)
        log = opened(path, config)
        answered: list[int] = []
        with dying_after(steps, monkeypatch):
            try:
                for number in range(12):
                    log.append(batch(b"%d" % number * 50, producer=(7, 0, number)), 0)
                    answered.append(number)
                log.close()
                done = True
            except Crash:
                done = False
        log.abandon()
        again = opened(path, config)
        offsets = [record.offset for record in records_of(again)]
        assert offsets[: len(answered)] == answered
        assert offsets == list(range(len(offsets)))
        if offsets:
            repeated = again.append(batch(b"0" * 50, producer=(7, 0, offsets[-1])), 0)
            assert (repeated.duplicate, repeated.base_offset) == (True, offsets[-1])
        again.close()
        shutil.rmtree(path)
        if done:
            return
    pytest.fail("appending never came to its end")


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Have the operating system refuse larger files, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 60, 500])
def test_a_full_disk_is_told_and_the_log_goes_on_when_there_is_room(
    tmp_path: Path, room: int
) -> None:
    log = opened(tmp_path)
    for _ in range(20):
        log.append(batch(b"before" * 100), 0)
    with files_no_larger_than(log.size + room):
        for _ in range(3):
            with pytest.raises(KafkaError) as caught:
                log.append(batch(b"refused" * 100), 0)
            assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
            assert len(records_of(log)) == log.log_end_offset == 20
    assert log.append(batch(b"after" * 100), 0).base_offset == 20
    for _ in range(2):
        assert [record.offset for record in records_of(log)] == list(range(21))
        log.abandon()
        log = opened(tmp_path)
        assert log.cut_bytes == 0
    log.close()


APPENDING = """
import sys
from pathlib import Path
from kohort.broker.log.config import LogConfig
from tests.broker.log.batches import batch, opened
log = opened(Path(sys.argv[1]), LogConfig(segment_bytes=20_000))
number = log.log_end_offset
while True:
    log.append(batch(b"%d" % number * 40, producer=(7, 0, number)), 0)
    number += 1
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


def test_sigkill_at_a_random_moment_loses_nothing_answered(tmp_path: Path) -> None:
    answered = 0
    for _ in range(6):
        command = [sys.executable, "-c", APPENDING, str(tmp_path)]
        root = str(Path(__file__).resolve().parents[3])
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, cwd=root, env={**os.environ, "PYTHONPATH": root}
        ) as child:
            assert child.stdout is not None
            for _ in range(random.randrange(1, 700)):
                answered = int(child.stdout.readline())
            child.send_signal(signal.SIGKILL)
            rest = [line for line in child.stdout if line.endswith(b"\n")]
            answered = int(rest[-1]) if rest else answered
        log = opened(tmp_path)
        offsets = [record.offset for record in records_of(log, 1 << 20)]
        assert offsets == list(range(log.log_end_offset))
        assert answered <= log.log_end_offset <= answered + 1
        last = log.log_end_offset - 1
        assert log.append(batch(b"%d" % last * 40, producer=(7, 0, last)), 0).base_offset == last
        log.abandon()
