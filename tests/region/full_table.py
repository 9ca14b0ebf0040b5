"""Writes to a Delta table whose disk takes nothing more: `python -m tests.region.full_table PATH`.

No file of this process may grow then (RLIMIT_FSIZE), in whatever language it is written.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from kohort.region import DeltaSink, OperatorId, RegionPartition, SinkError

SCHEMA = pa.schema([("value", pa.int64())])
PLACE, ONE = RegionPartition("t", "an-id", 0), OperatorId("one", "a")


@contextmanager
def full() -> Iterator[None]:
    """Let no file grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def refused(action: Callable[[], object]) -> str:
    """Return the error by which something fails while the disk is full."""
    try:
        with full():
            action()
    except SinkError as error:
        return str(error)
    return "it did not fail"


def main() -> None:
    """Make a table, then commit and write to it while the disk is full, then again."""
    path = Path(sys.argv[1])
    sink = DeltaSink(path, SCHEMA)
    made = refused(lambda: DeltaSink(path.parent / "other", SCHEMA).open("r", "an-id", 0))
    sink.open("r", "an-id", 0)
    writer = sink.writer(ONE, 1)
    writer.write(PLACE, [{"value": 1}])
    first = writer.prepare(1, 1)
    committed = refused(lambda: sink.publish(1, {ONE: first}))
    writer.write(PLACE, [{"value": 2}])
    written = refused(lambda: writer.prepare(2, 1))
    again = sink.writer(ONE, 2)  # by whom the records are processed again
    again.write(PLACE, [{"value": 2}])
    second = again.prepare(3, 2)
    for _ in range(2):
        sink.publish(1, {ONE: first})
        sink.publish(3, {ONE: second})
    sys.stdout.write(json.dumps({"made": made, "committed": committed, "written": written}))


if __name__ == "__main__":
    main()
