"""Compaction removes only what readers no longer need, and changes nothing else."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from tempfile import mkdtemp

import google_crc32c
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kohort.broker.log import compaction
from kohort.broker.log.compaction import compact, needs_compaction
from kohort.broker.log.config import LogConfig
from kohort.broker.log.partition_log import PartitionLog
from kohort.errors import ErrorCode, KafkaError
from kohort.wire.records import Compression, Record, decode_records, encode_batch, verify_crc
from tests.broker.log.batches import batch, keyed, opened, records_of, state_of
from tests.broker.log.crashes import Crash, dying_after

COMPACTED = LogConfig(segment_bytes=300, compact=True, delete=False, delete_retention_ms=0)
# Compaction checks the age of files; for it, tests run in the year 2100.
LATER_MS = 4_102_444_800_000
# Size of a batch header in bytes.
HEADER = 61


def run(log: PartitionLog, now_ms: int = LATER_MS) -> None:
    for _ in compact(log, now_ms):
        pass


def fill(log: PartitionLog, count: int = 40) -> dict[bytes, bytes]:
    model: dict[bytes, bytes] = {}
    for number in range(count):
        key, value = b"k%d" % (number % 7), None if number % 5 == 0 else b"v%d" % number
        codec = Compression(number % 5)
        log.append(keyed([(key, value), (b"all", b"%d" % number)], codec=codec), 0)
        model[b"all"] = b"%d" % number
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value
    return model


def test_compaction_keeps_the_newest_of_each_key_and_every_offset(tmp_path: Path) -> None:
    log = opened(tmp_path, COMPACTED)
    model = fill(log)
    before = {record.offset: record for record in records_of(log)}
    size, end, segments = log.size, log.log_end_offset, len(log.segments)
    run(log)
    for _ in range(2):
        assert state_of(log) == model
        assert log.log_end_offset == end
        assert log.size < size / 2
        assert len(log.segments) < segments / 2
        assert all(before[record.offset] == record for record in records_of(log))
        assert all(verify_crc(one) for _, one in log.batches())
        log.close()
        log = opened(tmp_path, COMPACTED)
    assert sorted(path.name for path in tmp_path.glob("*.cleaned")) == []
    log.close()


class CompactedLog(RuleBasedStateMachine):
    """In any sequence of operations, readers see records in order, and each key's newest record."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(mkdtemp())
        self.log = opened(self.path, COMPACTED)
        self.written: list[Record] = []
        self.steps = compact(self.log, LATER_MS)

    keys = st.sampled_from([b"a", b"b", b"c", b"d"])
    pairs = st.tuples(keys, st.none() | st.binary(max_size=9))

    @rule(
        pairs=st.lists(pairs, min_size=1, max_size=4),
        codec=st.sampled_from(Compression),
        data=st.data(),
    )
    def append(
        self, pairs: list[tuple[bytes, bytes | None]], codec: Compression, data: st.DataObject
    ) -> None:
        base = len(self.written)
        timestamps = [data.draw(st.integers(1, 9_000)) for _ in pairs]
        records = [
            Record(i, timestamps[i], key, value, (("h", b"x"),))
            for i, (key, value) in enumerate(pairs)
        ]
        assert self.log.append(encode_batch(records, codec=codec), 0).base_offset == base
        self.written += [record._replace(offset=base + record.offset) for record in records]

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(steps=st.integers(1, 30))
    def compact_a_little(self, steps: int) -> None:
        for _ in range(steps):
            if next(self.steps, self) is self:
                self.steps = compact(self.log, LATER_MS)
                return

    @rule(in_order=st.booleans())
    def reopen(self, in_order: bool) -> None:
        if in_order:
            self.log.close()
        else:
            self.log.abandon()
        self.log = opened(self.path, COMPACTED)
        self.steps = compact(self.log, LATER_MS)

    @rule()
    def delete_records(self) -> None:
        before = self.log.log_start_offset + len(self.written) // 9
        self.log.delete_records(min(before, self.log.log_end_offset))
        self.written = [
            record if record.offset >= self.log.log_start_offset else record._replace(key=None)
            for record in self.written
        ]

    @invariant()
    def readers_see_the_newest(self) -> None:
        assert self.log.log_end_offset == len(self.written)
        found = records_of(self.log)
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        assert all(self.written[record.offset] == record for record in found)
        state: dict[bytes, bytes | None] = {}
        for record in self.written:
            if record.key is not None:
                state[record.key] = record.value
        expected = {key: value for key, value in state.items() if value is not None}
        assert state_of(self.log) == expected

    def teardown(self) -> None:
        self.log.close()
        shutil.rmtree(self.path)


CompactedLog.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestCompactedLog = CompactedLog.TestCase


def test_a_death_at_any_step_loses_nothing_and_brings_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "template"
    log = opened(template, COMPACTED)
    model = fill(log, 24)
    log.close()
    for steps in range(400):
        path = tmp_path / str(steps)
        shutil.copytree(template, path)
        log = opened(path, COMPACTED)
        with dying_after(steps, monkeypatch):
            try:
                run(log)
                done = True
            except Crash:
                done = False
        log.abandon()
        again = opened(path, COMPACTED)
        assert state_of(again) == model, f"after {steps} steps"
        assert again.log_end_offset == 48
        loaded = [record.offset for _, one in again.batches() for record in decode_records(one)]
        assert loaded == sorted(set(loaded)), f"after {steps} steps"
        run(again)
        assert state_of(again) == model, f"after {steps} steps and another pass"
        again.abandon()
        shutil.rmtree(path)
        if done:
            return
    pytest.fail("compaction never came to its end")


def test_tombstones_stay_until_readers_had_time_to_see_them(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=300, compact=True, delete_retention_ms=60_000)
    log = opened(tmp_path, config)
    log.append(keyed([(b"k", b"v")]), 0)
    log.append(keyed([(b"k", None)]), 0)
    log.roll()
    now_ms = time.time_ns() // 1_000_000
    run(log, now_ms)
    assert [(r.key, r.value) for r in records_of(log)] == [(b"k", None)]
    log.compacted_to = 0
    run(log, now_ms + 59_000)
    assert len(records_of(log)) == 1
    log.compacted_to = 0
    run(log, now_ms + 61_000)
    assert records_of(log) == []
    log.close()


def test_an_emptied_batch_still_proves_what_its_producer_wrote(tmp_path: Path) -> None:
    log = opened(tmp_path, COMPACTED)
    sent = batch(b"old", b"old", key=b"k", producer=(7, 0, 0), codec=Compression.ZSTD)
    log.append(sent, 0)
    log.append(batch(b"new", key=b"k"), 0)
    log.roll()
    run(log)
    assert [record.value for record in records_of(log)] == [b"new"]
    log.abandon()
    for path in tmp_path.glob("*.producers"):
        path.unlink()
    log = opened(tmp_path, COMPACTED)
    again = log.append(sent, 0)
    assert (again.duplicate, again.base_offset, log.log_end_offset) == (True, 0, 3)
    log.close()


def test_memory_for_keys_is_bounded_and_passes_get_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_KEYS_BYTES", 500)  # room for about three keys
    log = opened(tmp_path, COMPACTED)
    model = fill(log)
    passes = 0
    while log.compacted_to < log.segments[-1].base_offset:
        run(log)
        passes += 1
        assert state_of(log) == model
    assert passes > 3
    log.close()


def test_a_full_disk_stops_a_pass_and_nothing_else(tmp_path: Path) -> None:
    log = opened(tmp_path, COMPACTED)
    model = fill(log)
    (tmp_path / "00000000000000000000.log.cleaned").mkdir()  # makes the write fail
    with pytest.raises(OSError, match="cleaned"):
        run(log)
    (tmp_path / "00000000000000000000.log.cleaned").rmdir()
    assert state_of(log) == model
    run(log)
    assert state_of(log) == model
    log.close()


def test_a_segment_deleted_in_the_middle_of_a_pass_ends_the_pass(tmp_path: Path) -> None:
    log = opened(tmp_path, COMPACTED)
    fill(log)
    for number, _ in enumerate(compact(log, LATER_MS)):
        if number == 45:
            log.delete_records(log.segments[-1].base_offset)
    assert len(log.segments) == 1
    names = {path.name for path in tmp_path.glob("*.log*")}
    assert names == {log.segments[0].path.name}
    log.close()


def test_compaction_is_due_when_half_of_the_log_is_new(tmp_path: Path) -> None:
    log = opened(tmp_path, COMPACTED)
    assert not needs_compaction(log)
    fill(log)
    assert needs_compaction(log)
    run(log)
    assert not needs_compaction(log)
    log.close()


def test_a_record_without_key_or_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path, COMPACTED)
    with pytest.raises(KafkaError) as caught:
        log.append(batch(b"no key"), 0)
    assert caught.value.code == ErrorCode.INVALID_RECORD
    log.close()


def test_a_header_name_that_is_not_utf8_keeps_its_bytes(tmp_path: Path) -> None:
    """Kafka accepts it; readers replace the invalid bytes, and the log keeps them."""
    log = opened(tmp_path, LogConfig(segment_bytes=300))
    pair = [Record(0, 1, b"k", b"old", ()), Record(1, 1, b"other", b"kept", (("?", b"x"),))]
    odd = bytearray(encode_batch(pair))
    odd[odd.index(b"?")] = 0xFF
    log.append(with_crc(odd), 0)
    log.append(batch(b"w", key=b"k"), 0)
    log.config = COMPACTED
    log.roll()
    run(log)
    assert b"old" not in bytes(log.read(0, 1_000))
    assert b"kept\x02\x02\xff\x02x" in bytes(log.read(0, 1_000))
    log.close()


def test_what_cannot_be_read_is_left_as_it_is(tmp_path: Path) -> None:
    log = opened(tmp_path, LogConfig(segment_bytes=300))
    whole = encode_batch([Record(0, 1, b"k", b"value", ())])
    log.append(whole, 0)
    log.append(batch(b"w", key=b"k"), 0)
    (file,) = (each for each in tmp_path.rglob("*.log") if b"value" in each.read_bytes())
    damaged = whole[HEADER:].replace(b"value", b"VALUE")
    with file.open("r+b") as segment:  # like disk damage, after the batch was accepted
        segment.seek(file.read_bytes().index(whole[HEADER:]))
        segment.write(damaged)
    log.config = COMPACTED
    log.roll()
    run(log)
    assert log.read(0, 1)[HEADER:] == damaged
    with pytest.raises(KafkaError) as caught:
        log.offset_for_timestamp(0)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    log.close()


def with_crc(one: bytearray) -> bytes:
    one[17:21] = google_crc32c.value(bytes(one[21:])).to_bytes(4, "big")
    return bytes(one)


def test_the_age_of_a_file_survives_its_cleaning(tmp_path: Path) -> None:
    log = opened(tmp_path, COMPACTED)
    fill(log)
    for segment in log.segments:
        os.utime(segment.path, (1_000, 1_000))
    run(log)
    assert log.segments[0].modified_ms == 1_000_000
    log.close()
