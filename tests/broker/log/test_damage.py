"""Damage to a log causes an error for its readers, and never a silent gap."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.broker.log.compaction import compact_due
from kohort.broker.log.config import LogConfig
from kohort.broker.log.directory import DataDirectory
from kohort.broker.log.partition_log import PartitionLog
from kohort.errors import ErrorCode, KafkaError
from kohort.types import TopicPartition
from kohort.wire.records import iter_batches
from tests.broker.log.batches import batch, keyed, opened

PER_SEGMENT = 60
SEGMENTS = 3


def filled(path: Path, config: LogConfig | None = None) -> PartitionLog:
    """Return a log of segments with several index entries each, and repeated keys."""
    log = opened(path, config)
    for number in range(SEGMENTS * PER_SEGMENT):
        if number and number % PER_SEGMENT == 0:
            log.roll()
        log.append(keyed([(b"%02d" % (number % 50), b"v" * 400)], timestamp=1_000 + number), 0)
    return log


def damage(path: Path, change: Callable[[bytearray], None]) -> None:
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)


def zeros_at(at: int, size: int = 100) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        content[at : at + size] = bytes(size)

    return change


def segment(path: Path, number: int) -> Path:
    return sorted(path.glob("*.log"))[number]


def first_read(log: PartitionLog, offset: int) -> int | None:
    """Return the first offset that a reader gets, None for CORRUPT_MESSAGE."""
    try:
        data = log.read(offset, 1)
    except KafkaError as error:
        return None if error.code == ErrorCode.CORRUPT_MESSAGE else -1
    return next(iter_batches(data))[0].base_offset


def told(caplog: pytest.LogCaptureFixture, level: str) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == level]


@pytest.mark.parametrize("lost", ["", "*.index", "*.timeindex", "*index"])
@pytest.mark.parametrize("number", range(SEGMENTS - 1))
@pytest.mark.parametrize("batch_number", [0, 1, 30, PER_SEGMENT - 1])
def test_no_reader_passes_over_damage_of_a_closed_segment(
    tmp_path: Path, number: int, batch_number: int, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path).close()
    path = segment(tmp_path, number)
    damage(path, zeros_at(path.stat().st_size // PER_SEGMENT * batch_number))
    for index in tmp_path.glob(lost) if lost else ():
        index.unlink()
    log = opened(tmp_path)
    first = number * PER_SEGMENT
    found = [first_read(log, offset) for offset in range(log.log_end_offset)]
    assert all(got in (None, offset) for offset, got in enumerate(found))
    assert found[first + batch_number] is None
    assert None not in found[: first + batch_number]
    assert None not in found[first + PER_SEGMENT :]
    if not lost:  # the index leads past the damage
        assert found[first : first + PER_SEGMENT].count(None) < 20
    assert log.log_end_offset == SEGMENTS * PER_SEGMENT
    with pytest.raises(KafkaError, match=str(path)):
        list(log.batches())
    assert [str(path) in line for line in told(caplog, "ERROR")] == [True]
    log.close()


@pytest.mark.parametrize("junk", [os.urandom, bytes])
def test_a_segment_that_holds_nothing_but_junk_is_not_passed_over(
    tmp_path: Path, junk: Callable[[int], bytes]
) -> None:
    filled(tmp_path).close()
    path = segment(tmp_path, 0)
    path.write_bytes(junk(path.stat().st_size))
    log = opened(tmp_path)
    found = [first_read(log, offset) for offset in range(log.log_end_offset)]
    assert found == [None] * PER_SEGMENT + list(range(PER_SEGMENT, SEGMENTS * PER_SEGMENT))
    with pytest.raises(KafkaError) as caught:
        log.offset_for_timestamp(1_010)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    log.close()


def test_a_search_for_a_time_does_not_pass_over_damage(tmp_path: Path) -> None:
    filled(tmp_path).close()
    damage(segment(tmp_path, 0), zeros_at(0))
    log = opened(tmp_path)
    with pytest.raises(KafkaError) as caught:
        log.offset_for_timestamp(0)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.offset_for_timestamp(1_000 + PER_SEGMENT) == (PER_SEGMENT, 1_000 + PER_SEGMENT)
    log.close()


def test_compaction_leaves_a_damaged_log_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The records after the damage would not be copied."""
    config = LogConfig(compact=True, delete=False)
    filled(tmp_path, config).close()
    damage(segment(tmp_path, 1), zeros_at(0))
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.log")}
    log = opened(tmp_path, config)
    for _ in range(2):
        for _ in compact_due([log], 0):
            pass
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.log")} == before
    assert [str(tmp_path) in line for line in told(caplog, "ERROR")] == [True]
    log.close()


@pytest.mark.parametrize("name", ["t-0", "__consumer_offsets-3"])
def test_what_is_cut_off_after_a_crash_is_told(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path / name).abandon()
    path = segment(tmp_path / name, -1)
    at = path.stat().st_size // 2

    def flip(content: bytearray) -> None:
        content[at] ^= 1

    damage(path, flip)
    log = opened(tmp_path / name)
    (line,) = told(caplog, "WARNING")
    assert all(word in line for word in (str(path), f"offset {log.log_end_offset} "))
    assert f" {log.cut_bytes} bytes" in line
    assert ("committed offsets" in line) == (name != "t-0")
    log.close()
    opened(tmp_path / name).close()
    assert len(told(caplog, "WARNING")) == 1


def test_a_row_of_batches_that_breaks_after_a_shutdown_in_order_is_told_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path).close()
    path = segment(tmp_path, -1)
    size = path.stat().st_size
    at = size // PER_SEGMENT * (PER_SEGMENT - 2)
    damage(path, zeros_at(at))
    behind = path.read_bytes()[at:]
    log = opened(tmp_path)
    end = SEGMENTS * PER_SEGMENT - 2
    assert (log.log_end_offset, log.cut_bytes) == (end, len(behind))
    (kept,) = tmp_path.glob("*.cut-at-*")
    assert kept.read_bytes() == behind
    (line,) = told(caplog, "ERROR")
    assert all(word in line for word in (str(path), f"offset {end}, ", kept.name))
    assert log.append(batch(b"next", key=b"k"), 0).base_offset == end
    log.close()
    assert opened(tmp_path).log_end_offset == end + 1
    assert len(told(caplog, "ERROR")) == 1


def test_batches_that_are_missing_since_a_shutdown_in_order_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path).close()
    path = segment(tmp_path, -1)
    os.truncate(path, path.stat().st_size // PER_SEGMENT * 50)
    for _ in range(2):
        log = opened(tmp_path)
        assert (log.log_end_offset, log.cut_bytes) == ((SEGMENTS - 1) * PER_SEGMENT + 50, 0)
        log.close()
    (line,) = told(caplog, "ERROR")
    assert str(path) in line
    assert "missing" in line


def test_a_mark_of_an_earlier_version_counts(tmp_path: Path) -> None:
    filled(tmp_path).close()
    path = segment(tmp_path, -1)
    (tmp_path / "clean-shutdown").write_text(f"{int(path.stem)} {path.stat().st_size}\n")
    damage(path, zeros_at(path.stat().st_size - 10, 10))
    log = opened(tmp_path)
    assert (log.log_end_offset, log.cut_bytes) == (SEGMENTS * PER_SEGMENT, 0)
    log.close()


def removed_last_segment(path: Path, is_closed: bool, *also: str) -> int:
    """Fill a log, end it and remove the log file of its last segment; return its end offset."""
    log = filled(path)
    end = log.log_end_offset
    if is_closed:
        log.close()
    else:
        log.abandon()
    last = segment(path, -1)
    last.unlink()
    for suffix in also:
        last.with_suffix(suffix).unlink()
    return end


@pytest.mark.parametrize(
    ("is_closed", "also", "witness"),
    [
        (True, (), ".producers"),
        (True, (".index", ".timeindex"), ".producers"),
        (False, (), ".index"),
        (False, (".timeindex",), ".index"),
        (False, (".index",), ".timeindex"),
    ],
)
def test_a_last_segment_that_was_removed_is_told(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    is_closed: bool,
    also: tuple[str, ...],
    witness: str,
) -> None:
    end = removed_last_segment(tmp_path, is_closed, *also)
    again = opened(tmp_path)
    left = end - PER_SEGMENT
    assert again.log_end_offset == left
    (line,) = told(caplog, "ERROR")
    match = re.search(r"ends at offset (\d+), .*up to at least offset (\d+) \(see (\S+)\)", line)
    assert match is not None
    assert int(match[1]) == left
    assert left < int(match[2]) <= end
    assert match[3].endswith(witness)
    again.abandon()


def test_a_last_segment_without_a_trace_cannot_be_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    removed_last_segment(tmp_path, False, ".index", ".timeindex")
    opened(tmp_path).abandon()
    assert told(caplog, "ERROR") == []


def test_a_last_segment_is_missed_though_the_one_before_it_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    removed_last_segment(tmp_path, False)
    damage(segment(tmp_path, -1), zeros_at(segment(tmp_path, -1).stat().st_size - 50, 50))
    opened(tmp_path).abandon()
    (line,) = told(caplog, "ERROR")
    assert ".index)" in line


def test_a_log_that_ends_before_deleted_records_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(tmp_path)
    log.delete_records(log.log_end_offset - 1)
    log.abandon()
    path = segment(tmp_path, -1)
    os.truncate(path, path.stat().st_size // PER_SEGMENT * 10)
    opened(tmp_path).abandon()
    (line,) = told(caplog, "ERROR")
    assert f"up to at least offset {SEGMENTS * PER_SEGMENT - 1} (see log-start-offset)" in line


@pytest.mark.parametrize("content", [b"", b"torn", b"\xff" * 16, b"\x00" * 8])
def test_damaged_leftovers_stop_no_start(tmp_path: Path, content: bytes) -> None:
    removed_last_segment(tmp_path, False)
    for index in tmp_path.glob("*index"):
        index.write_bytes(content)
    log = opened(tmp_path)
    assert log.log_end_offset == (SEGMENTS - 1) * PER_SEGMENT
    log.abandon()


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_whole_log_is_not_said_to_miss_anything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_closed: bool
) -> None:
    log = filled(tmp_path)
    if is_closed:
        log.close()
    else:
        log.abandon()
    opened(tmp_path).abandon()
    assert told(caplog, "ERROR") == []


def test_two_last_segments_that_were_removed_are_told_after_a_crash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path).abandon()
    for _ in range(2):
        segment(tmp_path, -1).unlink()
    opened(tmp_path).abandon()
    (line,) = told(caplog, "ERROR")
    assert f"ends at offset {PER_SEGMENT}, but there were records" in line


def test_a_partition_without_its_only_log_file_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = DataDirectory(tmp_path, LogConfig())
    directory.create_topic("t", 1, {})
    log = directory.log(TopicPartition("t", 0))
    log.append(batch(b"1"), 0)
    assert told(caplog, "ERROR") == []
    log.abandon()
    segment(log.directory, 0).unlink()
    directory._logs.clear()
    assert directory.log(TopicPartition("t", 0)).log_end_offset == 0
    (line,) = told(caplog, "ERROR")
    assert "there is no log file" in line
    directory.close()
