"""Idempotent producers: repeated batches, batches out of order, and expiry."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.broker.log.config import LogConfig
from kohort.errors import ErrorCode, KafkaError
from tests.broker.log.batches import batch, opened

SMALL = LogConfig(segment_bytes=400)
DAY_MS = 24 * 3600 * 1000


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("lost", ["", "*.producers"])
def test_a_repeated_batch_is_answered_with_its_first_offset_also_after_a_restart(
    tmp_path: Path, crash: bool, lost: str
) -> None:
    log = opened(tmp_path, SMALL)
    sizes = [1, 3, 2, 300, 1]
    sent, first = [], 0
    for size in sizes:
        sent.append(batch(*[b"v"] * size, producer=(7, 0, first)))
        assert log.append(sent[-1], 0).base_offset == first
        first += size
    for _ in range(2):
        for number, one in enumerate(sent):
            again = log.append(one, 0)
            assert (again.duplicate, again.base_offset) == (True, sum(sizes[:number]))
        assert log.log_end_offset == first
        if crash:
            log.abandon()
        else:
            log.close()
        for path in tmp_path.glob(lost) if lost else ():
            path.unlink()
        log = opened(tmp_path, SMALL)
    log.close()


def test_the_sixth_batch_back_is_not_remembered(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for number in range(6):
        log.append(batch(b"v", producer=(7, 0, number)), 0)
    assert log.append(batch(b"v", producer=(7, 0, 1)), 0).base_offset == 1
    with pytest.raises(KafkaError) as caught:
        log.append(batch(b"v", producer=(7, 0, 0)), 0)
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.close()


@pytest.mark.parametrize(
    ("producer", "code"),
    [
        ((7, 1, 3), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ((7, 1, 1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ((7, 0, 9), ErrorCode.INVALID_PRODUCER_EPOCH),
        ((7, 2, 1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ((7, -1, 0), ErrorCode.INVALID_RECORD),
    ],
)
def test_sequence_and_epoch_are_checked(
    tmp_path: Path, producer: tuple[int, int, int], code: int
) -> None:
    log = opened(tmp_path, SMALL)
    log.append(batch(b"a", b"b", producer=(7, 1, 0)), 0)
    with pytest.raises(KafkaError) as caught:
        log.append(batch(b"c", producer=producer), 0)
    assert caught.value.code == code
    assert log.append(batch(b"c", producer=(7, 2, 0)), 0).base_offset == 2
    log.close()


def test_sequences_wrap_after_the_largest_int32(tmp_path: Path) -> None:
    log = opened(tmp_path, SMALL)
    across = batch(b"a", b"b", b"c", producer=(7, 0, 0x7FFFFFFE))
    log.append(across, 0)
    assert log.append(batch(b"d", producer=(7, 0, 1)), 0).base_offset == 3
    assert log.append(across, 0).base_offset == 0
    log.close()


def test_a_producer_nobody_knows_may_begin_anywhere(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert log.append(batch(b"a", producer=(7, 3, 55)), 0).base_offset == 0
    log.close()


def test_a_silent_producer_is_forgotten_by_the_brokers_clock(tmp_path: Path) -> None:
    log = opened(tmp_path, LogConfig(retention_ms=-1))
    log.append(batch(b"a", timestamp=1, producer=(7, 0, 0)), 0)
    log.apply_retention(5 * DAY_MS)
    assert len(log.producers) == 1
    log.append(batch(b"a", timestamp=2, producer=(7, 0, 1)), 0)
    log.apply_retention(6 * DAY_MS)
    assert len(log.producers) == 1
    log.apply_retention(7 * DAY_MS)
    assert len(log.producers) == 0
    log.close()
