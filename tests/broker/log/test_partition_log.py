"""A partition's log compared with a list, through restarts, crashes and damaged indexes."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path
from tempfile import mkdtemp

import google_crc32c
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kohort.broker.log.config import LogConfig, log_config
from kohort.errors import ErrorCode, KafkaError
from kohort.wire.records import Compression, iter_batches
from tests.broker.log.batches import batch, opened, records_of

SMALL = LogConfig(segment_bytes=400, delete_retention_ms=0)


class LogAgainstList(RuleBasedStateMachine):
    """The list has the expected records, whatever happens to other files of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(mkdtemp())
        self.log = opened(self.path, SMALL)
        self.values: list[bytes] = []
        self.start = 0

    @rule(
        values=st.lists(st.binary(max_size=60), min_size=1, max_size=5),
        codec=st.sampled_from(Compression),
    )
    def append(self, values: list[bytes], codec: Compression) -> None:
        result = self.log.append(batch(*values, codec=codec), 0)
        assert result.base_offset == len(self.values)
        self.values += values

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.log = opened(self.path, SMALL)
        assert self.log.cut_bytes == 0

    @rule()
    def crash(self) -> None:
        self.log.abandon()
        self.log = opened(self.path, SMALL)
        assert self.log.cut_bytes == 0

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(suffix=st.sampled_from(["index", "timeindex", "producers"]))
    def lose_files(self, suffix: str) -> None:
        self.log.close()
        for path in self.path.glob(f"*.{suffix}"):
            path.unlink()
        self.log = opened(self.path, SMALL)

    @rule(
        suffix=st.sampled_from(["index", "timeindex"]),
        garbage=st.binary(min_size=1, max_size=40),
    )
    def damage_indexes(self, suffix: str, garbage: bytes) -> None:
        self.log.close()
        for path in self.path.glob(f"*.{suffix}"):
            path.write_bytes(garbage + path.read_bytes()[len(garbage) :])
        self.log = opened(self.path, SMALL)

    @precondition(lambda self: self.values)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, len(self.values)))
        self.log.delete_records(self.start)

    @invariant()
    def reads_what_was_appended(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (
            self.start,
            len(self.values),
        )
        found = records_of(self.log)
        assert [r.value for r in found] == self.values[self.start :]
        assert [r.offset for r in found] == list(range(self.start, len(self.values)))

    def teardown(self) -> None:
        self.log.close()
        shutil.rmtree(self.path)


LogAgainstList.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestLogAgainstList = LogAgainstList.TestCase


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (b"garbage" * 20, ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
        (batch(b"a")[:-1], ErrorCode.INVALID_RECORD),
        (batch(b"a")[:-1] + b"x", ErrorCode.CORRUPT_MESSAGE),
        (batch(b"x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_what_is_not_one_sound_batch_is_refused(tmp_path: Path, sent: bytes, code: int) -> None:
    log = opened(tmp_path)
    with pytest.raises(KafkaError) as caught:
        log.append(sent, 0)
    assert caught.value.code == code
    assert log.log_end_offset == 0
    log.close()


def test_offsets_outside_the_log_are_out_of_range(tmp_path: Path) -> None:
    log = opened(tmp_path, SMALL)
    log.append(batch(b"a", b"b", b"c"), 0)
    log.delete_records(1)
    assert log.read(3, 100) == b""
    for offset in (-1, 0, 4):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    log.close()


def test_reads_are_as_large_as_whole_batches_allow(tmp_path: Path) -> None:
    log = opened(tmp_path)
    one = len(batch(b"v" * 700))
    for _ in range(60):
        log.append(batch(b"v" * 700), 0)
    for offset in range(60):
        for batches in (1, 7, 60):
            expected = min(batches, 60 - offset) * one
            assert len(log.read(offset, batches * one + one - 1)) == expected
        assert len(log.read(offset, 1)) == one
        assert len(log.read(offset, one - 1, at_least_one=False)) == 0
        assert len(log.read(offset, one, at_least_one=False)) == one
    log.close()


def test_every_offset_is_found_among_batches_of_all_sizes(tmp_path: Path) -> None:
    """Also if a header spans two of the pieces in which the file is searched."""
    rng = random.Random(8)
    log = opened(tmp_path)
    sizes: dict[int, int] = {}
    for _ in range(300):
        values = [b"v" * rng.choice((0, 200, 5_000, 9_000))] * rng.randint(1, 3)
        sizes[log.log_end_offset] = len(batch(*values))
        log.append(batch(*values), 0)
    for offset in range(log.log_end_offset):
        ((header, found),) = iter_batches(log.read(offset, 1))
        assert header.base_offset <= offset <= header.last_offset
        assert len(found) == sizes[header.base_offset]
    log.close()


def test_what_does_not_fit_is_not_passed_over(tmp_path: Path) -> None:
    """Even if the next segment has a smaller batch that would fit."""
    log = opened(tmp_path, SMALL)
    large, little = batch(b"v" * 700), batch(b"v")
    log.append(large, 0)
    log.roll()
    log.append(little, 0)
    assert log.read(0, len(little), at_least_one=False) == b""
    assert len(log.read(1, len(little), at_least_one=False)) == len(little)
    log.close()


def test_timestamps_find_the_first_record_at_or_after(tmp_path: Path) -> None:
    log = opened(tmp_path, SMALL)
    for number in range(30):
        log.append(batch(b"v" * 50, timestamp=1_000 + number * 10), 0)
    assert log.offset_for_timestamp(0) == (0, 1_000)
    assert log.offset_for_timestamp(1_101) == (11, 1_110)
    assert log.offset_for_timestamp(1_290) == (29, 1_290)
    assert log.offset_for_timestamp(1_291) is None
    assert log.offset_of_max_timestamp() == (29, 1_290)
    log.close()


def test_timestamps_out_of_order_are_found_with_and_without_an_index(tmp_path: Path) -> None:
    timestamps = [(number * 7919) % 5_000 for number in range(400)]
    log = opened(tmp_path, LogConfig(segment_bytes=20_000))
    for timestamp in timestamps:
        log.append(batch(b"v" * 300, timestamp=timestamp), 0)
    for lost in ("", "index", "timeindex"):
        for wanted in range(0, 5_001, 61):
            found = next(((at, t) for at, t in enumerate(timestamps) if t >= wanted), None)
            assert log.offset_for_timestamp(wanted) == found
        log.close()
        for path in tmp_path.glob(f"*.{lost}"):
            path.unlink()
        log = opened(tmp_path, LogConfig(segment_bytes=20_000))
    log.close()


def test_log_append_time_is_the_brokers(tmp_path: Path) -> None:
    log = opened(tmp_path, LogConfig(log_append_time=True))
    assert log.append(batch(b"a", timestamp=5), 777).append_time == 777
    assert [record.timestamp for record in records_of(log)] == [777]
    log.close()


def test_retention_by_time_removes_whole_segments_and_offsets_go_on(tmp_path: Path) -> None:
    log = opened(tmp_path, LogConfig(segment_bytes=100, retention_ms=1_000))
    for number in range(6):
        log.append(batch(b"v" * 50, timestamp=number * 1_000), 0)
    assert log.apply_retention(now_ms=4_500) == 4
    assert log.log_start_offset == 4
    assert [record.offset for record in records_of(log)] == [4, 5]
    assert log.apply_retention(now_ms=9_000) == 2
    for _ in range(2):
        assert (log.log_start_offset, log.log_end_offset) == (6, 6)
        log.close()
        log = opened(tmp_path)
    assert log.append(batch(b"v"), 0).base_offset == 6
    log.close()


def test_retention_by_size_keeps_the_newest(tmp_path: Path) -> None:
    one = len(batch(b"v" * 50))
    log = opened(tmp_path, LogConfig(segment_bytes=one, retention_ms=-1, retention_bytes=3 * one))
    for _ in range(8):
        log.append(batch(b"v" * 50), 0)
    assert log.apply_retention(0) == 5
    assert [record.offset for record in records_of(log)] == [5, 6, 7]
    log.close()


@pytest.mark.parametrize(
    ("policy", "compact", "delete"),
    [("compact", True, False), ("delete", False, True), ("compact, delete", True, True)],
)
def test_cleanup_policies(policy: str, compact: bool, delete: bool) -> None:
    config = log_config(LogConfig(), {"cleanup.policy": policy, "segment.bytes": "77"})
    assert (config.compact, config.delete, config.segment_bytes) == (compact, delete, 77)


def test_an_unknown_cleanup_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="shred"):
        log_config(LogConfig(), {"cleanup.policy": "shred"})


def test_a_header_alone_may_be_of_a_time_that_has_not_come(tmp_path: Path) -> None:
    log = opened(tmp_path)
    lies = bytearray(batch(b"v"))
    struct.pack_into(">q", lies, 35, 10**15)  # the batch's max timestamp
    struct.pack_into(">I", lies, 17, google_crc32c.value(bytes(lies[21:])))
    with pytest.raises(KafkaError, match="INVALID_TIMESTAMP: the batch's header"):
        log.append(bytes(lies), 0)
    log.close()
