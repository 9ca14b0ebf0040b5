"""SIGKILL at any moment loses nothing that was answered for, and repeats nothing."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import confluent_kafka
import pytest

from kohort.errors import ErrorCode
from kohort.types import TopicPartition
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from kohort.wire.messages.producer_ids import InitProducerIdRequest
from kohort.wire.records import decode_records, iter_batches
from tests.broker.log.batches import batch
from tests.broker.peer import Peer
from tests.broker.processes import DEADLINE_S, BrokerProcess, eventually

ROUNDS = 8
PARTITIONS = 3
COMMIT_VERSION = FETCH_VERSION = 7


class Load:
    """An idempotent librdkafka producer and a member-less group that commits, both without end."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.produced = 0
        self.sent_offset = self.committed_offset = 0
        self.failures: list[object] = []
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=f) for f in (self._produce, self._commit)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
        assert not self.failures

    def until_acknowledged(self, count: int) -> None:
        """Return when so many records are acknowledged."""
        eventually(
            lambda: self._stopping.wait(0.002) or len(self.acknowledged) >= count,
            f"{count} records are acknowledged",
        )

    def _produce(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "log_level": 0,
            }
        )
        while not self._stopping.is_set():
            value = b"%d" % self.produced
            self.produced += 1
            producer.produce(
                "t", value, partition=self.produced % PARTITIONS, on_delivery=self._delivered
            )
            producer.poll(0.001 if len(producer) > 100 else 0)
        assert producer.flush(DEADLINE_S) == 0

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failures.append(error)
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        self.acknowledged[value] = (partition, offset)

    def _commit(self) -> None:
        while not self._stopping.is_set():
            try:
                with Peer(self.broker.bootstrap_servers) as peer:
                    self._commit_on(peer)
            except OSError:
                self._stopping.wait(0.01)  # the broker is down: ask again a little later

    def _commit_on(self, peer: Peer) -> None:
        while not self._stopping.is_set():
            self.sent_offset += 1
            code = commit(peer, self.sent_offset)
            if code == ErrorCode.NONE:
                self.committed_offset = self.sent_offset
            elif code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                self.failures.append(code)
                return


def commit(peer: Peer, offset: int) -> int:
    """Store a position of group g without being a member."""
    position = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=None
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=(position,))
    request = OffsetCommitRequest(group_id="g", member_id="", topics=(topic,))
    answer = peer.ask(request, COMMIT_VERSION)
    return answer.topics[0].partitions[0].error_code


def committed(peer: Peer) -> int:
    """The position of group g, once the broker has loaded it."""
    topic = OffsetFetchRequestTopic(name="t", partition_indexes=(0,))
    request = OffsetFetchRequest(group_id="g", topics=(topic,))
    answers = []

    def loaded() -> bool:
        answers.append(peer.ask(request, FETCH_VERSION))
        return answers[-1].error_code == ErrorCode.NONE

    eventually(loaded, "the group is loaded")
    return answers[-1].topics[0].partitions[0].committed_offset


def everything(peer: Peer) -> dict[bytes, list[tuple[int, int]]]:
    """Where each value stands in the topic."""
    found: dict[bytes, list[tuple[int, int]]] = {}
    for number in range(PARTITIONS):
        offset, part = 0, peer.fetch(TopicPartition("t", number), 0, max_bytes=1 << 24)
        while part.records:
            for _, data in iter_batches(part.records):
                for record in decode_records(data):
                    found.setdefault(record.value or b"", []).append((number, record.offset))
                    offset = record.offset + 1
            part = peer.fetch(TopicPartition("t", number), offset, max_bytes=1 << 24)
        assert part.high_watermark == offset
    return found


def test_nothing_that_was_acknowledged_is_lost_or_repeated(tmp_path: Path) -> None:
    chance = random.Random(2013)
    with BrokerProcess(tmp_path / "data") as broker:
        with Peer(broker.bootstrap_servers) as peer:
            peer.create("t", PARTITIONS, segment_bytes="200000")
        load = Load(broker)
        load.start()
        try:
            for _ in range(ROUNDS):
                enough = len(load.acknowledged) + chance.randrange(200, 2_000)
                load.until_acknowledged(enough)
                broker.kill()
                acknowledged, position = dict(load.acknowledged), load.committed_offset
                broker.start()
                with Peer(broker.bootstrap_servers) as peer:
                    assert position <= committed(peer) <= load.sent_offset
                    found = everything(peer)
                missing = [v for v, at in acknowledged.items() if at not in found.get(v, [])]
                assert not missing
        finally:
            load.stop()
        with Peer(broker.bootstrap_servers) as peer:
            found = everything(peer)
        assert {value: [at] for value, at in load.acknowledged.items()} == found
        assert len(found) == load.produced


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_repeated_batch_gets_its_first_offset_after_a_restart(how: str, tmp_path: Path) -> None:
    partition = TopicPartition("t", 0)
    with BrokerProcess(tmp_path / "data") as broker:
        with Peer(broker.bootstrap_servers) as peer:
            peer.create("t")
            init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
            producer_id = peer.ask(init, 4).producer_id
            batches = [batch(b"a", b"b", producer=(producer_id, 0, at)) for at in (0, 2, 4)]
            assert [peer.produce(partition, each).base_offset for each in batches] == [0, 2, 4]
        getattr(broker, how)()
        broker.start()
        with Peer(broker.bootstrap_servers) as peer:
            again = [peer.produce(partition, each) for each in batches]
            assert [(each.error_code, each.base_offset) for each in again] == [
                (0, 0),
                (0, 2),
                (0, 4),
            ]
            assert peer.fetch(partition, 0).high_watermark == 6
            gap = peer.produce(partition, batch(b"x", producer=(producer_id, 0, 8)))
            assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert peer.ask(init, 4).producer_id > producer_id
