"""Transactions in one partition: a reader of committed records sees exactly those."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kohort.broker.log.compaction import compact
from kohort.broker.log.config import LogConfig
from kohort.broker.log.partition_log import PartitionLog
from kohort.errors import ErrorCode, KafkaError
from kohort.wire.records import Record, decode_records, encode_batch, iter_batches
from kohort.wire.records.marker import Marker
from tests.broker.log.batches import opened

CONFIG = LogConfig(segment_bytes=400, compact=True, delete=False, delete_retention_ms=0)
LATER_MS = 4_102_444_800_000  # in the year 2100: every tombstone is old
PRODUCERS = (1, 2, 3)


def read(log: PartitionLog) -> dict[bytes, bytes]:
    """Return the newest committed value of each key, read as a client does."""
    found: dict[bytes, bytes] = {}
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        data = log.read(offset, 150, before=log.last_stable_offset)
        if not data:
            break
        batches = list(iter_batches(data))
        end = batches[-1][0].next_offset
        aborted = log.producers.aborted_within(offset, end)
        for header, batch in batches:
            gone = any(
                each.producer_id == header.producer_id
                and each.first_offset <= header.base_offset < each.last_offset
                for each in aborted
            )
            if not header.is_control and not (gone and header.is_transactional):
                for each in decode_records(batch):
                    assert each.key is not None
                    assert each.value is not None
                    found[each.key] = each.value
        offset = end
    return found


class TransactionalLog(RuleBasedStateMachine):
    """A compacted log of several producers, compared with a dictionary of committed values."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(mkdtemp())
        self.log = opened(self.path, CONFIG)
        self.committed: list[tuple[int, bytes, bytes]] = []
        self.open: dict[int, list[tuple[int, bytes, bytes]]] = {}
        self.first: dict[int, int] = {}
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.count = 0

    producers = st.sampled_from(PRODUCERS)

    @rule(producer=producers, key=st.sampled_from([b"a", b"b", b"c"]))
    def write(self, producer: int, key: bytes) -> None:
        self.count += 1
        value = b"%d" % self.count
        batch = encode_batch(
            [Record(0, 1, key, value)],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=self.sequences[producer],
            is_transactional=True,
        )
        at = self.log.append(batch, 1).base_offset
        self.sequences[producer] += 1
        self.first.setdefault(producer, at)
        self.open.setdefault(producer, []).append((at, key, value))

    @rule(key=st.sampled_from([b"a", b"b", b"c"]))
    def write_alone(self, key: bytes) -> None:
        self.count += 1
        value = b"%d" % self.count
        at = self.log.append(encode_batch([Record(0, 1, key, value)]), 1).base_offset
        self.committed.append((at, key, value))

    @rule(producer=producers, committed=st.booleans())
    def end(self, producer: int, committed: bool) -> None:
        self.log.append_marker(Marker(producer, 0, committed), 1)
        self.first.pop(producer, None)
        written = self.open.pop(producer, [])
        if committed:
            self.committed += written

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def compact_all(self) -> None:
        for _ in compact(self.log, LATER_MS):
            pass

    @rule(in_order=st.booleans(), snapshots=st.booleans())
    def reopen(self, in_order: bool, snapshots: bool) -> None:
        if in_order:
            self.log.close()
        else:
            self.log.abandon()
        if not snapshots:  # they only speed up loading
            for each in self.path.glob("*.producers"):
                each.unlink()
        self.log = opened(self.path, CONFIG)

    @invariant()
    def the_end_is_the_first_that_is_open(self) -> None:
        expected = min(self.first.values(), default=self.log.log_end_offset)
        assert self.log.last_stable_offset == expected

    @invariant()
    def what_is_committed_is_read(self) -> None:
        stable = self.log.last_stable_offset
        expected = {key: value for at, key, value in sorted(self.committed) if at < stable}
        assert read(self.log) == expected

    def teardown(self) -> None:
        self.log.close()


TestTransactionalLog = TransactionalLog.TestCase
TestTransactionalLog.settings = settings(max_examples=150, stateful_step_count=40)


def test_a_late_marker_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path, CONFIG)
    log.append_marker(Marker(1, 5, committed=True), 1)
    with pytest.raises(KafkaError) as refused:
        log.append_marker(Marker(1, 4, committed=True), 1)
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    log.close()


def test_a_batch_beside_the_own_transaction_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path, CONFIG)
    for number, code in ((0, None), (1, ErrorCode.INVALID_TXN_STATE)):
        batch = encode_batch(
            [Record(0, 1, b"k", b"v")],
            producer_id=1,
            producer_epoch=0,
            base_sequence=number,
            is_transactional=code is None,
        )
        if code is None:
            log.append(batch, 1)
            continue
        with pytest.raises(KafkaError) as refused:
            log.append(batch, 1)
        assert refused.value.code == code
    log.close()
