"""One plain Python application of `kohort demo --quick`: a Consumer in, one Delta table out."""

from __future__ import annotations

import argparse
import queue
import sys
import threading
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from kohort.demo.actors import say
from kohort.demo.settings import GroupProtocol
from kohort.errors import CommitFailedError, RebalanceInProgressError
from kohort.spark.parquet import TaskReport

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.client import Consumer
    from kohort.spark.parquet import ArrowTask
    from kohort.types import TopicPartition

BATCH_RECORDS = 20_000
POLL_MS = 200


def commands() -> queue.Queue[str]:
    """Return a queue of the lines that the demo sends."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line.strip())
        lines.put("drain")

    threading.Thread(target=read, name="commands", daemon=True).start()
    return lines


def parse(batch: pa.RecordBatch, application: str) -> pa.Table:
    """Turn fetched records into rows of the table: the JSON's fields and the record's place."""
    import pyarrow as pa
    import pyarrow.json

    lines = b"\n".join(batch.column("value").to_pylist())
    fields = pa.schema(
        [
            ("id", pa.int64()),
            ("carrier", pa.string()),
            ("flight", pa.int32()),
            ("tailnum", pa.string()),
            ("origin", pa.string()),
            ("dest", pa.string()),
            ("dep_delay", pa.int64()),
            ("month", pa.int32()),
            ("day", pa.int32()),
        ]
    )
    options = pyarrow.json.ParseOptions(explicit_schema=fields)
    table = pyarrow.json.read_json(pa.BufferReader(lines), parse_options=options)
    for name in ("topic", "partition", "offset"):
        table = table.append_column(name, pa.chunked_array([batch.column(name)]))
    names = pa.array([application] * table.num_rows, pa.string())
    return table.append_column("application", names)


class _ArrowRows:
    """The rows of one batch, for `DeltaAppend`."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def write(self, task: ArrowTask) -> Iterator[TaskReport]:
        for reports in task(self._rows.to_batches()):
            for report in reports.column(0).to_pylist():
                yield TaskReport.from_json(report)


class Application:
    """Reads, writes, commits; in that order, unless it is told to sabotage itself.

    It is the listener of its own consumer: what it gives up it commits before.
    """

    def __init__(self, consumer: Consumer, arguments: argparse.Namespace) -> None:
        """Take a consumer and the settings of the command line."""
        from kohort.spark.delta import DeltaAppend

        self._consumer = consumer
        self._uncommitted = False
        self._name = arguments.name
        self._sabotage = arguments.sabotage
        # The demo makes its topic once, so positions need no topic ids.
        self._table = DeltaAppend(
            arguments.table, group_id=arguments.group, positions_without_id="same"
        )
        self._batch_id = 0

    def step(self) -> None:
        """Handle one batch."""
        batch = self._consumer.poll_arrow(timeout_ms=POLL_MS, max_records=BATCH_RECORDS)
        if not batch.num_rows:
            self._commit()
            return
        self._uncommitted = True
        if self._sabotage:
            self._commit()
        say("batch-open", records=batch.num_rows)
        self._write(batch)
        self._commit()
        say("batch-done")

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Do nothing: the group's offsets say where to begin."""

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:  # noqa: ARG002  # a listener's signature
        """Commit, so that the next owner begins where this one ended."""
        self._commit()

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Do nothing: others read again what was not committed, and the table drops it."""

    def _write(self, batch: pa.RecordBatch) -> None:
        rows = parse(batch, self._name)
        self._table.append(_ArrowRows(rows), rows.schema, self._batch_id)
        self._batch_id += 1

    def _commit(self) -> None:
        """Commit what was read; where the group is busy with a rebalance, the next step does."""
        if not self._uncommitted:
            return
        try:
            self._consumer.commit()
        except (CommitFailedError, RebalanceInProgressError):
            return
        self._uncommitted = False


def main() -> None:
    """Run the application until it is told to drain, or killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("name", "bootstrap", "topic", "group", "table", "session-timeout-ms"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--group-protocol", required=True)
    parser.add_argument("--sabotage", action="store_true")
    arguments = parser.parse_args()
    from kohort.client import Consumer

    orders = commands()
    say("ready")
    if orders.get() != "go":
        return
    protocol = GroupProtocol(arguments.group_protocol)
    settings = {
        "bootstrap.servers": arguments.bootstrap,
        "group.id": arguments.group,
        "client.id": arguments.name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        **protocol.client_settings(int(arguments.session_timeout_ms)),
    }
    with Consumer.from_config(settings) as consumer:
        application = Application(consumer, arguments)
        consumer.subscribe([arguments.topic], listener=application)
        say("going")
        while orders.empty():
            application.step()
    say("drained")


if __name__ == "__main__":
    main()
