"""Record batches to Arrow columns on one core, compared with aiokafka's Cython parser.

Values of 60 to 140 bytes, keys of 4 to 16, uncompressed batches of 1 MiB, CRC checked by both; our
code produces all eight columns, theirs one object per record. Before anything is timed, the columns
are compared with the reference decoder of the tests, row by row.

    python benchmarks/kernel.py [--records N] [--codec zstd] [--headers] [--rounds N] [--json]
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pyarrow as pa
from aiokafka.record.memory_records import MemoryRecords

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness  # noqa: E402  # found only after the line above
from kohort.wire.records import Compression, RecordBatchBuilder  # noqa: E402  # as above
from kohort.wire.records.arrow import Fetched, decode_to_arrow  # noqa: E402  # as above
from tests.wire.records import reference  # noqa: E402  # as above

BATCH_BYTES = 1024 * 1024
OURS = "kohort, eight Arrow columns"
THEIRS = "aiokafka, an object each"


def make_batches(records: int, codec: Compression, headers: bool) -> bytes:
    """Return about `records` records in batches of 1 MiB before compression."""
    chance = random.Random(1)
    batches = []
    offset, timestamp = 0, 1_700_000_000_000
    header = [("source", b"benchmark")] if headers else []
    while offset < records:
        builder = RecordBatchBuilder()
        while builder.size < BATCH_BYTES - 200:
            timestamp += chance.randint(0, 3)
            key = chance.randbytes(chance.randint(4, 16))
            value = chance.randbytes(chance.randint(60, 140))
            builder.append(timestamp, key, value, header, offset)
            offset += 1
        batches.append(builder.build(codec))
    return b"".join(batches)


# Ours is repeated, so that a round of either side takes about as long, under the same conditions.
REPEAT = 8


def ours(data: bytes) -> pa.RecordBatch:
    """Decode everything to columns."""
    return decode_to_arrow([Fetched("flights", 3, data)]).batch


def theirs(data: bytes) -> int:
    """Parse everything to objects, checking the CRC as their consumer does by default."""
    count = 0
    memory = MemoryRecords(data)
    while (batch := memory.next_batch()) is not None:
        if not batch.validate_crc():
            raise AssertionError("aiokafka finds a wrong CRC")
        for _ in batch:
            count += 1
    return count


def expected_columns(plain: bytes) -> dict[str, list[object]]:
    """Return the columns of the reference decoder."""
    rows = reference.decode(plain)
    records = [row.record for row in rows]
    headers = [[{"key": k, "value": v} for k, v in r.headers] or None for r in records]
    return {
        "key": [r.key for r in records],
        "value": [r.value for r in records],
        "topic": ["flights"] * len(rows),
        "partition": [3] * len(rows),
        "offset": [r.offset for r in records],
        "timestamp": [r.timestamp * 1000 for r in records],
        "timestampType": [row.timestamp_type for row in rows],
        "headers": list(headers),
    }


def main() -> int:
    """Run the benchmark."""
    parser = harness.arguments("Decode record batches to Arrow columns.", rounds=9)
    parser.add_argument("--records", type=int, default=70_000)
    parser.add_argument("--codec", choices=[c.name.lower() for c in Compression], default="none")
    parser.add_argument("--headers", action="store_true", help="one header in each record")
    options = parser.parse_args()
    codec = Compression[options.codec.upper()]
    data = make_batches(options.records, codec, options.headers)
    plain = make_batches(options.records, Compression.NONE, options.headers)

    expected = ours(data)
    columns = {name: expected[name] for name in expected.schema.names}
    columns["timestamp"] = columns["timestamp"].cast(pa.int64())
    if {name: column.to_pylist() for name, column in columns.items()} != expected_columns(plain):
        raise AssertionError("the columns are not what the reference decoder gives")
    count = expected.num_rows

    def check_ours(answer: object) -> None:
        assert answer == expected

    def check_theirs(answer: object) -> None:
        assert answer == count

    def repeated() -> object:
        for _ in range(REPEAT - 1):
            ours(data)
        return ours(data)

    sides = [
        harness.Side(OURS, repeated, REPEAT * count, check_ours),
        harness.Side(THEIRS, lambda: theirs(data), count, check_theirs),
    ]
    result = harness.measure(sides, options.rounds, "records")
    if codec is Compression.NONE and not options.headers:
        result.expect("million records a second", result.median(OURS) / 1e6, 25)
        result.expect("times aiokafka", result.ratio(OURS, THEIRS), 8)
    title = f"kernel: {count} records, {options.codec}, {len(data) / 2**20:.1f} MiB"
    return harness.report(title, result, options.json)


if __name__ == "__main__":
    sys.exit(main())
