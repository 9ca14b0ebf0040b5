"""Timestamp queries ignore deleted records, those before the start of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.broker.log.config import LogConfig
from kohort.broker.log.partition_log import PartitionLog
from kohort.wire.records import Compression, Record, encode_batch
from tests.broker.log.batches import batch, opened

TIMES = (5, 900, 3, 900, 7)


def timed(*times: int, codec: Compression = Compression.NONE) -> bytes:
    """Return a batch with one record per timestamp."""
    return encode_batch([Record(i, at, None, b"v") for i, at in enumerate(times)], codec=codec)


def newest(times: dict[int, int], start: int) -> tuple[int, int] | None:
    """Return the first offset with the largest timestamp, by checking each."""
    left = {offset: at for offset, at in times.items() if offset >= start}
    return max(left.items(), key=lambda item: (item[1], -item[0]), default=None)


def first(times: dict[int, int], start: int, at: int) -> tuple[int, int] | None:
    return next(((each, t) for each, t in times.items() if each >= start and t >= at), None)


def check(log: PartitionLog, times: dict[int, int]) -> None:
    start = log.log_start_offset
    assert log.offset_of_max_timestamp() == newest(times, start)
    for at in {0, *times.values(), 2_000}:
        assert log.offset_for_timestamp(at) == first(times, start, at)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("segment_bytes", [1, 100_000])
def test_no_answer_about_times_counts_deleted_records(
    segment_bytes: int, codec: Compression, tmp_path: Path
) -> None:
    """Checked for each start offset, also after the log was closed and reopened."""
    log = opened(tmp_path, LogConfig(segment_bytes=segment_bytes))
    rows = TIMES, (8, 6), (700, 2, 700), (1,)
    for row in rows:
        log.append(timed(*row, codec=codec), 0)
    times = dict(enumerate(at for row in rows for at in row))
    for start in range(len(times) + 1):
        log.delete_records(start)
        check(log, times)
    log.close()


def test_the_newest_record_that_is_left_is_known_after_a_restart(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(timed(*TIMES), 0)
    log.delete_records(4)
    assert log.offset_of_max_timestamp() == (4, 7)
    log.close()
    log = opened(tmp_path)
    assert log.offset_of_max_timestamp() == (4, 7)
    log.close()


def test_a_deleted_record_of_a_far_time_keeps_no_segment(tmp_path: Path) -> None:
    log = opened(tmp_path, LogConfig(segment_bytes=100_000, retention_ms=1_000))
    log.append(timed(3_000_000, 500), 0)
    assert log.apply_retention(now_ms=5_000) == 0
    log.delete_records(1)
    assert log.apply_retention(now_ms=1_500) == 0
    assert log.apply_retention(now_ms=1_501) == 1
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    assert log.append(batch(b"v"), 0).base_offset == 2
    log.close()
