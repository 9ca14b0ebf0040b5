"""One group with members of different clients."""

from __future__ import annotations

import threading
import uuid
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import Consumer
from tests.real_kafka import foreign
from tests.real_kafka.broker import RealKafka

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it reads its schemas in a deprecated way
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor

PARTITIONS = 4
RECORDS = 200


@pytest.fixture(params=["embedded", "real"])
def bootstrap(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "embedded":
        with EmbeddedBroker(tmp_path / "data") as broker:
            yield broker.bootstrap_servers
    else:
        kafka: RealKafka = request.getfixturevalue("real_kafka")
        yield kafka.bootstrap_servers


class Foreigner(threading.Thread):
    """A kafka-python consumer that polls until it is asked to stop."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.seen: list[bytes] = []
        self.partitions: set[int] = set()
        self.stopping = threading.Event()
        self._settings = (bootstrap, group, topic)

    def run(self) -> None:
        bootstrap, group, topic = self._settings
        client = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            session_timeout_ms=6_000,
            partition_assignment_strategy=[RangePartitionAssignor],
        )
        while not self.stopping.is_set():
            for records in client.poll(timeout_ms=100).values():
                self.seen += [record.value for record in records]
            self.partitions = {each.partition for each in client.assignment()}
        client.close()


def test_ours_and_kafka_python_share_a_topic(bootstrap: str) -> None:
    topic, group = foreign.new_topic(bootstrap, PARTITIONS), uuid.uuid4().hex
    foreigner = Foreigner(bootstrap, group, topic)
    seen: list[bytes] = []
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        session_timeout_ms=6_000,
    ) as ours:

        def poll() -> None:
            for records in ours.poll(100).values():
                seen.extend(record.value for record in records)

        while len(ours.assignment()) < PARTITIONS:
            poll()
        foreigner.start()
        while not (len(ours.assignment()) == len(foreigner.partitions) == PARTITIONS / 2):
            poll()
        for partition in range(PARTITIONS):
            values = [b"%d-%d" % (partition, number) for number in range(RECORDS)]
            foreign.produce(bootstrap, topic, values, partition)
        while len(seen) + len(foreigner.seen) < PARTITIONS * RECORDS:
            poll()
        foreigner.stopping.set()
        while foreigner.is_alive() or len(ours.assignment()) < PARTITIONS:
            poll()
    everything = Counter(seen) + Counter(foreigner.seen)
    assert len(everything) == PARTITIONS * RECORDS
    assert set(everything.values()) == {1}
    assert seen
    assert foreigner.seen
