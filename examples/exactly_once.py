"""Consume, transform and produce each record once, although the worker is killed repeatedly.

A worker reads orders, adds the tax and writes them to another topic. Its output and its position in
the input topic are one transaction (KIP-98, KIP-447): both are stored, or neither. This program
starts the worker, kills it with SIGKILL at random times, starts the next one, and in the end counts
the orders that readers of committed records see. The broker may be Apache Kafka or the embedded one
(`kohort broker`):

    python examples/exactly_once.py localhost:9092 [--orders N] [--kills N]
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence

from kohort import (
    AbortableTransactionError,
    AdminClient,
    Consumer,
    ConsumerRecord,
    Producer,
    TopicPartition,
)
from kohort.client import NewTopic
from kohort.errors import CommitFailedError

ORDERS, TAXED = "orders", "taxed-orders"
PARTITIONS = 2

Batches = Mapping[TopicPartition, Sequence[ConsumerRecord]]


def work(servers: str, run: str) -> None:
    """Run one worker until it is killed.

    Both ids belong to the instance: with the same transactional.id, a new worker ends the open
    transaction of its predecessor; with the same group.instance.id it gets its partitions at once.
    """
    consumer = Consumer(
        f"{ORDERS}-{run}",
        bootstrap_servers=servers,
        group_id=f"tax-{run}",
        group_instance_id="worker-1",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_poll_records=20,
    )
    producer = Producer(bootstrap_servers=servers, transactional_id=f"tax-{run}-worker-1")
    with producer, consumer:
        producer.init_transactions()
        while True:
            batches = consumer.poll(timeout_ms=500)
            if not batches:
                continue
            try:
                with producer.transaction():
                    for record in (each for batch in batches.values() for each in batch):
                        producer.send(f"{TAXED}-{run}", taxed(record.value), key=record.key)
                    producer.send_offsets_to_transaction(ends(batches), consumer.group_metadata())
            except (AbortableTransactionError, CommitFailedError) as error:
                # Aborted: read the partitions that we still own again. All other errors end the
                # worker.
                print("begins again:", error, file=sys.stderr)
                rewind(consumer, batches)


def taxed(order: bytes) -> bytes:
    """Add the tax."""
    known = json.loads(order)
    return json.dumps({**known, "tax": round(known["price"] * 0.19, 2)}).encode()


def ends(batches: Batches) -> dict[TopicPartition, int]:
    """Return the next offset to read in each partition."""
    return {partition: records[-1].offset + 1 for partition, records in batches.items()}


def rewind(consumer: Consumer, batches: Batches) -> None:
    """Go back to the first record of each batch."""
    for partition in consumer.assignment() & batches.keys():
        consumer.seek(partition, batches[partition][0].offset)


# ------------------------------------------------------------------------------ the experiment


def main() -> int:
    """Kill workers, and count the orders."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("servers", help="bootstrap.servers")
    parser.add_argument("--orders", type=int, default=2_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--work", metavar="RUN", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.servers, given.work)
    run = uuid.uuid4().hex[:8]
    prepare(given.servers, run, given.orders)
    seen = Counter(watch(given.servers, run, given.orders, given.kills))
    expected = Counter(range(given.orders))
    print(
        f"{given.orders} orders, {given.kills} kills: {(seen - expected).total()} too many,", end=""
    )
    print(f" {(expected - seen).total()} missing")
    return int(seen != expected)


def prepare(servers: str, run: str, orders: int) -> None:
    """Create the topics, and write the orders."""
    with AdminClient(bootstrap_servers=servers) as admin:
        names = (f"{ORDERS}-{run}", f"{TAXED}-{run}")
        admin.create_topics([NewTopic(name, PARTITIONS) for name in names])
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(orders):
            order = json.dumps({"number": number, "price": 10 + number % 90})
            producer.send(f"{ORDERS}-{run}", order.encode(), key=b"%d" % number)


def watch(servers: str, run: str, orders: int, kills: int) -> list[int]:
    """Return the numbers of committed orders, and kill workers meanwhile."""
    moments = sorted(random.sample(range(orders), kills))
    found: list[int] = []
    places = [TopicPartition(f"{TAXED}-{run}", number) for number in range(PARTITIONS)]
    settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    worker = started(servers, run)
    try:
        with Consumer.from_config({"bootstrap.servers": servers, **settings}) as reader:
            reader.assign(places)
            while len(found) < orders or moments:
                for records in reader.poll(timeout_ms=random.randrange(1, 50)).values():
                    found += [json.loads(record.value)["number"] for record in records]
                if moments and len(found) >= moments[0]:
                    del moments[0]
                    worker.kill()
                    worker.wait()
                    worker = started(servers, run)
            # Anything that the last worker still writes would be a duplicate.
            worker.terminate()
            worker.wait()
            last = reader.end_offsets(places)
            while any(reader.position(place) < last[place] for place in places):
                for records in reader.poll(timeout_ms=100).values():
                    found += [json.loads(record.value)["number"] for record in records]
    finally:
        worker.kill()
        worker.wait()
    return found


def started(servers: str, run: str) -> subprocess.Popen[bytes]:
    """Start a worker in a separate process."""
    return subprocess.Popen([sys.executable, __file__, servers, "--work", run])  # noqa: S603  # starts itself


if __name__ == "__main__":
    sys.exit(main())
