"""Ranges are read from a replica in the reader's rack, and from the leader when it is gone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kohort.client.net.backoff import Deadline
from kohort.spark.source.fetch.ranges import RangeReader, close_idle_connections
from tests.client.range_scenarios import check, value
from tests.real_kafka.broker import RealKafka

TOPIC = "near-and-far"
SETTINGS = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "offsets.topic.replication.factor": "1",
}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[RealKafka, RealKafka]]:
    """Two nodes in two racks; the first leads the topic's only partition."""
    far = RealKafka(tmp_path / "1", {**SETTINGS, "broker.rack": "far"})
    near = RealKafka(
        tmp_path / "2", {**SETTINGS, "broker.rack": "near"}, node_id=2, controller=far.controller
    )
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(RealKafka.__enter__, (far, near)))
        yield far, near
    finally:
        close_idle_connections()
        near.kill()
        far.kill()


def fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(TOPIC, 1, replica_assignment=[[1, 2]])
    admin.create_topics([wanted])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "batch.num.messages": 50})
    for number in range(1000):
        producer.produce(TOPIC, value(number), partition=0)
    assert producer.flush(30) == 0


def place(reader: RangeReader) -> str:
    """Where the partition is read now."""
    host, port = reader.places.find(TOPIC, 0, None, Deadline(10_000)).address
    return f"{host}:{port}"


@pytest.mark.timeout(240)
def test_the_closest_replica_is_read(nodes: tuple[RealKafka, RealKafka]) -> None:
    far, near = nodes
    fill(far.bootstrap_servers)
    small = {"max.partition.fetch.bytes": "2000"}
    anywhere = RangeReader(far.bootstrap_servers, small)
    check(pa.Table.from_batches(anywhere.read(TOPIC, 0, 0, 1000)), 0, 1000)
    assert place(anywhere) == far.bootstrap_servers
    here = RangeReader(far.bootstrap_servers, {**small, "client.rack": "near"})
    batches = here.read(TOPIC, 0, 0, 1000)
    read = [next(batches)]
    assert place(here) == near.bootstrap_servers
    near.kill()
    read += batches
    check(pa.Table.from_batches(read), 0, 1000)
    assert place(here) == far.bootstrap_servers
