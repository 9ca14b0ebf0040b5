"""The log of a partition against a list, through restarts, torn tails and flipped bytes."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kohort.broker.log.compaction import compact
from kohort.broker.log.files import FileCache
from kohort.broker.log.partition_log import LogConfig, PartitionLog
from kohort.errors import ErrorCode, KafkaError
from kohort.wire.records import Record, decode_records, iter_batches
from tests.broker.log.batches import batch, keyed

SMALL = LogConfig(segment_bytes=400, delete_retention_ms=0)


def opened(path: Path, config: LogConfig = SMALL) -> PartitionLog:
    return PartitionLog(path, config, FileCache(4))


def records_of(log: PartitionLog) -> list[Record]:
    """Read the log as a consumer does, from its start to its end."""
    found: list[Record] = []
    at = log.log_start_offset
    while at < log.log_end_offset:
        data = log.read(at, 150)
        wanted = at
        for header, one in iter_batches(data):
            found += [record for record in decode_records(one) if record.offset >= wanted]
            at = header.next_offset
        if at == wanted:
            break
    return found


class LogAgainstList(RuleBasedStateMachine):
    """Appends, restarts, deletions and lost index files; the list says what must be there."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(mkdtemp())
        self.log = opened(self.path)
        self.values: list[bytes] = []
        self.start = 0

    @rule(values=st.lists(st.binary(max_size=60), min_size=1, max_size=5))
    def append(self, values: list[bytes]) -> None:
        result = self.log.append(batch(*values), 0)
        assert result.base_offset == len(self.values)
        self.values += values

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.log = opened(self.path)
        assert self.log.cut_bytes == 0

    @rule(suffix=st.sampled_from(["index", "timeindex", "producers"]))
    def lose_files(self, suffix: str) -> None:
        self.log.close()
        for path in self.path.glob(f"*.{suffix}"):
            path.unlink()
        self.log = opened(self.path)

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


@pytest.fixture
def two_batches(tmp_path: Path) -> tuple[Path, int, list[int]]:
    """A log of five batches in one file; returns it, its size and where batches end."""
    log = opened(tmp_path / "original", LogConfig())
    ends = []
    for number in range(5):
        log.append(batch(b"%d-a" % number, b"%d-b" % number), 0)
        ends.append(log.size)
    log.close()
    return tmp_path / "original", ends[-1], ends


def test_a_tail_cut_at_any_byte_loses_only_what_is_torn(
    two_batches: tuple[Path, int, list[int]], tmp_path: Path
) -> None:
    original, size, ends = two_batches
    for cut in range(ends[2], size):
        copy = tmp_path / "copy"
        shutil.copytree(original, copy)
        path = next(copy.glob("*.log"))
        path.write_bytes(path.read_bytes()[:cut])
        log = opened(copy, LogConfig())
        whole = sum(end <= cut for end in ends)
        assert log.log_end_offset == 2 * whole
        assert len(records_of(log)) == 2 * whole
        assert log.append(batch(b"next"), 0).base_offset == 2 * whole
        log.close()
        shutil.rmtree(copy)


def test_any_flipped_byte_of_the_tail_is_not_served(
    two_batches: tuple[Path, int, list[int]], tmp_path: Path
) -> None:
    original, size, ends = two_batches
    content = next(original.glob("*.log")).read_bytes()
    for at in range(ends[2], size):
        copy = tmp_path / "copy"
        shutil.copytree(original, copy)
        damaged = bytearray(content)
        damaged[at] ^= 0x55
        next(copy.glob("*.log")).write_bytes(damaged)
        log = opened(copy, LogConfig())
        whole = sum(end <= at for end in ends)
        assert [r.offset for r in records_of(log)] == list(range(2 * whole))
        assert log.cut_bytes == size - ends[whole - 1]
        log.close()
        shutil.rmtree(copy)


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
    log = opened(tmp_path, LogConfig())
    with pytest.raises(KafkaError) as caught:
        log.append(sent, 0)
    assert caught.value.code == code
    assert log.log_end_offset == 0
    log.close()


def test_offsets_outside_the_log_are_out_of_range(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(batch(b"a", b"b", b"c"), 0)
    log.delete_records(1)
    assert log.read(3, 100) == b""
    for offset in (-1, 0, 4):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    log.close()


def test_timestamps_find_the_first_record_at_or_after(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for number in range(30):
        log.append(batch(b"v" * 50, timestamp=1_000 + number * 10), 0)
    assert log.offset_for_timestamp(0) == (0, 1_000)
    assert log.offset_for_timestamp(1_101) == (11, 1_110)
    assert log.offset_for_timestamp(1_290) == (29, 1_290)
    assert log.offset_for_timestamp(1_291) is None
    assert log.offset_of_max_timestamp() == (29, 1_290)
    log.close()


def test_log_append_time_is_the_brokers(tmp_path: Path) -> None:
    log = opened(tmp_path, LogConfig(log_append_time=True))
    assert log.append(batch(b"a", timestamp=5), 777).append_time == 777
    assert [record.timestamp for record in records_of(log)] == [777]
    log.close()


def test_retention_removes_old_closed_segments(tmp_path: Path) -> None:
    log = opened(tmp_path, LogConfig(segment_bytes=100, retention_ms=1_000))
    for number in range(6):
        log.append(batch(b"v" * 50, timestamp=number * 1_000), 0)
    assert log.apply_retention(now_ms=4_500) == 4
    assert log.log_start_offset == 4
    assert [record.offset for record in records_of(log)] == [4, 5]
    log.close()


# ----------------------------------------------------------------------------------- producers


def test_a_repeated_batch_is_answered_with_its_first_offset_also_after_a_restart(
    tmp_path: Path,
) -> None:
    log = opened(tmp_path)
    first = batch(b"a", b"b", producer=(7, 0, 0))
    second = batch(b"c" * 300, producer=(7, 0, 2))
    assert log.append(first, 0).base_offset == 0
    assert log.append(second, 0).base_offset == 2
    for _ in range(2):
        assert log.append(first, 0).duplicate
        assert log.append(second, 0) == log.append(second, 0)
        assert log.append(second, 0).base_offset == 2
        assert log.log_end_offset == 3
        log.close()
        log = opened(tmp_path)
    log.close()


@pytest.mark.parametrize(
    ("producer", "code"),
    [
        ((7, 1, 3), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ((7, 0, 9), ErrorCode.INVALID_PRODUCER_EPOCH),
        ((7, 2, 1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ((7, -1, 0), ErrorCode.INVALID_RECORD),
    ],
)
def test_sequence_and_epoch_are_checked(
    tmp_path: Path, producer: tuple[int, int, int], code: int
) -> None:
    log = opened(tmp_path)
    log.append(batch(b"a", b"b", producer=(7, 1, 0)), 0)
    with pytest.raises(KafkaError) as caught:
        log.append(batch(b"c", producer=producer), 0)
    assert caught.value.code == code
    assert log.append(batch(b"c", producer=(7, 2, 0)), 0).base_offset == 2
    log.close()


def test_sequences_wrap_after_the_largest_int32(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(batch(b"a", b"b", producer=(7, 0, 0x7FFFFFFE)), 0)
    assert log.append(batch(b"c", producer=(7, 0, 0)), 0).base_offset == 2
    log.close()


# ---------------------------------------------------------------------------------- compaction

COMPACTED = LogConfig(segment_bytes=200, compact=True, delete_retention_ms=0)


def fill(log: PartitionLog) -> dict[bytes, bytes]:
    model: dict[bytes, bytes] = {}
    for number in range(40):
        key, value = b"k%d" % (number % 7), None if number % 5 == 0 else b"v%d" % number
        log.append(keyed([(key, value), (b"all", b"%d" % number)]), 0)
        model[b"all"] = b"%d" % number
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value
    return model


def state_of(log: PartitionLog) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for record in records_of(log):
        assert record.key is not None
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value
    return state


def test_compaction_keeps_the_newest_of_each_key_and_every_offset(tmp_path: Path) -> None:
    log = opened(tmp_path, COMPACTED)
    model = fill(log)
    before = {record.offset: record for record in records_of(log)}
    size, end = log.size, log.log_end_offset
    for _ in compact(log, now_ms=10_000):
        pass
    for _ in range(2):
        assert state_of(log) == model
        assert log.log_end_offset == end
        assert log.size < size / 3
        assert all(before[record.offset] == record for record in records_of(log))
        log.close()
        log = opened(tmp_path, COMPACTED)
    log.close()


def test_a_crash_at_any_step_of_the_swap_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop at each rename and each removal in turn, then open what is left."""

    class Crash(Exception):
        pass

    for survive in range(400):
        path = tmp_path / str(survive)
        log = opened(path, COMPACTED)
        model = fill(log)
        left = survive
        real_rename, real_unlink = Path.rename, Path.unlink

        def step() -> None:
            nonlocal left
            if left == 0:
                raise Crash
            left -= 1

        def rename(self: Path, target: Path) -> object:
            step()
            return real_rename(self, target)

        def unlink(self: Path, missing_ok: bool = False) -> None:
            step()
            real_unlink(self, missing_ok)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", rename)
            patched.setattr(Path, "unlink", unlink)
            try:
                for _ in compact(log, now_ms=10_000):
                    pass
                done = True
            except Crash:
                done = False
        again = opened(path, COMPACTED)
        assert state_of(again) == model, f"after {survive} steps"
        again.close()
        if done:
            return
    pytest.fail("the swap never came to its end")
