"""Random and mutated requests of every API and version: at most the connection is closed.

`KOHORT_FUZZ=100 pytest tests/broker/test_hostile_requests.py` sends that many of each.
"""

from __future__ import annotations

import logging
import os
import struct
import uuid
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from kohort.broker.dispatch import SERVED
from kohort.errors import ErrorCode
from kohort.types import TopicPartition
from kohort.wire import apis
from kohort.wire.codec import frame
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.records import Compression, Record, encode_batch
from tests.broker.log.batches import batch
from tests.broker.mutations import Enemy
from tests.broker.peer import Peer
from tests.broker.processes import BrokerProcess

OF_EACH = int(os.environ.get("KOHORT_FUZZ", "4"))
KEPT = TopicPartition("kept", 0)
MIB = 1 << 20
# Joins and fetches may wait for others; this test does not.
PATIENCE_S = 0.03


def attack(bootstrap: str, seed: int) -> None:
    """Send some of each; from time to time check that a normal client gets a response at once."""
    with Peer(bootstrap) as honest:
        honest.create("kept")
        assert honest.produce(KEPT, batch(b"kept")).error_code == ErrorCode.NONE
        honest.create("t", 2)
        asked = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
        enemy = Enemy(seed, honest.ask(asked, 12).topics[0].topic_id)
        for key, served in sorted(SERVED.items()):
            for version in range(served.first, served.last + 1):
                for _ in range(OF_EACH):
                    request = enemy.message(apis.request_class(key), version)
                    data = bytes(frame.encode_request(request, version, 1, "enemy"))
                    send(bootstrap, data)
                    body = data[4:8] + enemy.spoilt(data[8:])
                    send(bootstrap, struct.pack(">i", len(body)) + body)
            assert honest.fetch(KEPT, 0).records


def send(bootstrap: str, data: bytes) -> None:
    """Send bytes, and wait briefly for a response or the end of the connection."""
    with Peer(bootstrap) as peer:
        try:
            peer.socket.sendall(data)
            peer.socket.settimeout(PATIENCE_S)
            peer.socket.recv(1)
        except (ConnectionError, TimeoutError):
            return


def test_nothing_goes_wrong_inside(caplog: pytest.LogCaptureFixture) -> None:
    """Invalid requests are refused with one log line; a bug would log a traceback."""
    protocols = ("classic", "consumer", "draft")
    with EmbeddedBroker(protocols=protocols) as broker:
        attack(broker.bootstrap_servers, seed=1)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_memory_does_not_grow_and_the_directory_is_sound(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        attack(broker.bootstrap_servers, seed=2)
        assert broker.rss() < 100 * MIB
        broker.kill()
        broker.start()
        with Peer(broker.bootstrap_servers) as peer:
            assert peer.fetch(KEPT, 0).records


@pytest.mark.parametrize("version", [10, 11, 12])
def test_a_topic_id_that_nobody_has_is_answered_in_each_version(version: int) -> None:
    """Before version 12 requests have no ids, and the name in a response is never null."""
    asked = MetadataRequestTopic(name=None, topic_id=uuid.uuid4())
    with EmbeddedBroker() as broker, Peer(broker.bootstrap_servers) as peer:
        (topic,) = peer.ask(MetadataRequest(topics=(asked,)), version).topics
    by_id = version >= 12
    assert topic.error_code == (ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.INVALID_REQUEST)
    assert topic.name == (None if by_id else "")


def test_a_small_request_has_no_large_answer() -> None:
    """Refused records are listed (KIP-467), but not all of a batch compressed a thousandfold."""
    records = [Record(number, 0, None, b"") for number in range(9_000)]
    batch = encode_batch(records, codec=Compression.ZSTD)
    data = tuple(PartitionProduceData(index=number, records=batch) for number in (0, 1))
    topic = TopicProduceData(name="compacted", partition_data=data)
    with EmbeddedBroker() as broker, Peer(broker.bootstrap_servers) as peer:
        peer.create("compacted", 2, cleanup_policy="compact")
        request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=(topic,))
        answers = peer.ask(request, 12).responses[0].partition_responses
    assert [len(each.record_errors) for each in answers] == [9_000, 1_000]
