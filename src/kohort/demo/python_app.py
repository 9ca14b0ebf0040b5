"""One plain Python application of `kohort demo --quick`: flights in, one Delta table out.

It is an operator of a consistent region or, with `--no-region`, a plain Consumer that appends.
"""

from __future__ import annotations

import argparse
import logging
import threading
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kohort.delta.reports import TaskReport
from kohort.demo.actors import commands, say
from kohort.demo.settings import QUICK_PERIOD_MS, GroupProtocol
from kohort.demo.totals import columns, flight_fields, with_totals
from kohort.errors import CommitFailedError, RebalanceInProgressError

if TYPE_CHECKING:
    import queue

    import pyarrow as pa

    from kohort.client import Consumer, ConsumerRecord
    from kohort.delta.parquet import ArrowTask
    from kohort.region import KeyedState, RegionConsumer, RegionPartition
    from kohort.types import TopicPartition

BATCH_RECORDS = 20_000
REGION_BATCH_RECORDS = 4_000
POLL_MS = 200


def parse(values: Sequence[bytes], application: str) -> pa.Table:
    """Turn the values of records into rows, and add the name of the reader."""
    import pyarrow as pa
    import pyarrow.json

    options = pyarrow.json.ParseOptions(explicit_schema=flight_fields())
    lines = pa.BufferReader(b"\n".join(values))
    table = pyarrow.json.read_json(lines, parse_options=options)
    return table.append_column("application", pa.array([application] * table.num_rows, pa.string()))


def placed(rows: pa.Table, batch: pa.RecordBatch) -> pa.Table:
    """Return rows with topic, partition and offset of their records."""
    import pyarrow as pa

    for name in ("topic", "partition", "offset"):
        rows = rows.append_column(name, pa.chunked_array([batch.column(name)]))
    return rows


class _ArrowRows:
    """The rows of one batch, for `DeltaAppend`."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def write(self, task: ArrowTask) -> Iterator[TaskReport]:
        for reports in task(self._rows.to_batches()):
            for report in reports.column(0).to_pylist():
                yield TaskReport.from_json(report)


class Application:
    """Reads, writes and commits, in that order, except with sabotage.

    It is the listener of its own consumer: it commits partitions before giving them up.
    """

    def __init__(self, consumer: Consumer, arguments: argparse.Namespace) -> None:
        """Take a consumer and the settings of the command line."""
        from kohort.delta.append import TableAppend

        self._consumer = consumer
        self._uncommitted = False
        self._name = arguments.name
        self._sabotage = arguments.sabotage
        # The demo creates its topic only once, so positions need no topic ids.
        self._table = TableAppend(
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
        """Do nothing: the group's offsets are the starting points."""

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:  # noqa: ARG002  # a listener's signature
        """Commit, so that the next owner starts where this one ended."""
        self._commit()

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Do nothing: others read uncommitted records again, and the table drops duplicates."""

    def _write(self, batch: pa.RecordBatch) -> None:
        rows = placed(parse(batch.column("value").to_pylist(), self._name), batch)
        self._table.append(_ArrowRows(rows), rows.schema, self._batch_id)
        self._batch_id += 1

    def _commit(self) -> None:
        """Commit the records read; during a rebalance, leave that to the next step."""
        if not self._uncommitted:
            return
        try:
            self._consumer.commit()
        except (CommitFailedError, RebalanceInProgressError):
            return
        self._uncommitted = False


def run_alone(arguments: argparse.Namespace, orders: queue.Queue[str]) -> None:
    """Run as a member of a group, and append to the table."""
    from kohort.client import Consumer

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


def operator(arguments: argparse.Namespace) -> RegionConsumer:
    """Return the application as an operator of a region."""
    import deltalake  # noqa: F401  # so that the first checkpoint does not wait for it
    import pyarrow.json  # noqa: F401  # nor do the first records

    from kohort.region import DeltaSink, RegionConsumer

    def function(
        partition: RegionPartition, records: Sequence[ConsumerRecord], state: KeyedState
    ) -> pa.Table:
        import pyarrow as pa

        say("batch-open", records=len(records))
        rows = parse([record.value or b"" for record in records], arguments.name)
        count = len(records)
        places = {
            "topic": pa.array([partition.topic] * count),
            "partition": pa.array([partition.partition] * count, pa.int32()),
            "offset": pa.array([record.offset for record in records], pa.int64()),
        }
        rows = with_totals(placed(rows, pa.record_batch(places)), state)
        say("batch-done")
        return rows

    protocol = GroupProtocol(arguments.group_protocol)
    member = protocol.client_settings(int(arguments.session_timeout_ms))
    settings: dict[str, Any] = {key.replace(".", "_"): value for key, value in member.items()}
    return RegionConsumer(
        arguments.region,
        arguments.topic,
        function=function,
        sink=DeltaSink(arguments.table, columns()),
        operator=arguments.name,
        group_id=arguments.group,
        bootstrap_servers=arguments.bootstrap,
        period_ms=QUICK_PERIOD_MS,
        max_poll_records=REGION_BATCH_RECORDS,
        **settings,
    )


def run_in_region(worker: RegionConsumer, orders: queue.Queue[str]) -> None:
    """Run as an operator of a region until asked to stop."""

    def stop() -> None:
        orders.get()
        worker.stop()

    threading.Thread(target=stop, name="orders", daemon=True).start()
    say("going")
    worker.run()


def main() -> None:
    """Run the application until it must drain, or is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("name", "bootstrap", "topic", "group", "table", "session-timeout-ms"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--group-protocol", required=True)
    parser.add_argument("--region", help="name of a region to be an operator of")
    parser.add_argument("--sabotage", action="store_true")
    arguments = parser.parse_args()
    orders = commands()
    worker = operator(arguments) if arguments.region else None
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("kohort.region").setLevel(logging.INFO)
    say("ready")
    if orders.get() != "go":
        return
    if worker is None:
        run_alone(arguments, orders)
    else:
        run_in_region(worker, orders)
    say("drained")


if __name__ == "__main__":
    main()
