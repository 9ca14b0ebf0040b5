"""Kafka's own DumpLogSegments reads our segments, indexes and compacted logs, and agrees."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from kohort.broker.log.compaction import compact
from kohort.broker.log.config import LogConfig
from kohort.broker.log.partition_log import PartitionLog
from kohort.wire.records import Compression
from tests.broker.log.batches import batch, keyed, opened, records_of
from tests.real_kafka.broker import RealKafka

TOOL = "org.apache.kafka.tools.DumpLogSegments"
COMPLAINTS = ("Mismatches", "out of order", "Found timestamp mismatch", "isvalid: false", "ERROR")
LATER_MS = 4_102_444_800_000


def dump(kafka: RealKafka, files: Sequence[Path], *options: str) -> str:
    output = kafka.run_tool(TOOL, "--files", ",".join(map(str, files)), *options)
    for complaint in COMPLAINTS:
        assert complaint not in output, output
    return output


def offsets_in(output: str) -> list[int]:
    """Offsets of records, as --deep-iteration prints them behind a bar."""
    return [int(found) for found in re.findall(r"^\| offset: (\d+) ", output, re.MULTILINE)]


def dumped_log(kafka: RealKafka, log: PartitionLog) -> list[int]:
    paths = [segment.path for segment in log.segments]
    indexes = [*log.directory.glob("*.index"), *log.directory.glob("*.timeindex")]
    dump(kafka, sorted(indexes), "--verify-index-only")
    return offsets_in(dump(kafka, paths, "--deep-iteration"))


def test_kafkas_tool_agrees_with_our_segments_and_indexes(
    real_kafka: RealKafka, tmp_path: Path
) -> None:
    log = opened(tmp_path / "t-0", LogConfig(segment_bytes=9_000))
    for number in range(120):
        value = b"%d" % number * 200
        timestamp = 1_000 + (number * 7919) % 5_000
        producer = (5, 0, 2 * number)
        codec = Compression(number % 5)
        log.append(batch(value, value, timestamp=timestamp, producer=producer, codec=codec), 0)
    log.close()
    assert len(log.segments) > 2
    assert all(len(path.read_bytes()) for path in log.directory.glob("*.timeindex"))
    assert dumped_log(real_kafka, log) == list(range(240))


def test_kafkas_tool_agrees_with_a_compacted_log(real_kafka: RealKafka, tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=9_000, compact=True, delete_retention_ms=0)
    log = opened(tmp_path / "t-0", config)
    for number in range(200):
        pairs: list[tuple[bytes, bytes | None]] = [
            (b"k%d" % (number % 50), b"%d" % number * 100),
            (b"all", None if number % 9 else b"x"),
        ]
        log.append(keyed(pairs, codec=Compression(number % 5)), 0)
    log.append(batch(b"old", key=b"all", producer=(5, 0, 0)), 0)
    log.append(batch(b"new", key=b"all"), 0)
    log.roll()
    before = len(records_of(log))
    for _ in compact(log, LATER_MS):
        pass
    expected = [record.offset for record in records_of(log)]
    assert len(expected) < before / 2
    log.close()
    assert dumped_log(real_kafka, log) == expected
