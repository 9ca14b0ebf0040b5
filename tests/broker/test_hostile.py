"""Hostile bytes, and clients that do not read: no other client is affected."""

from __future__ import annotations

import logging
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from kohort.broker.dispatch import SERVED
from kohort.errors import ErrorCode
from kohort.types import TopicPartition
from kohort.wire.records import Compression, Record, encode_batch
from tests.broker.log.batches import batch
from tests.broker.peer import Peer, fetch_request
from tests.broker.processes import BrokerProcess

MIB = 1 << 20
T = TopicPartition("t", 0)
VERSIONS = [
    (key, version) for key, s in sorted(SERVED.items()) for version in range(s.first, s.last + 1)
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        with Peer(running.bootstrap_servers) as peer:
            peer.create("t")
            assert peer.produce(T, batch(b"a" * 1000)).error_code == 0
        yield running


@pytest.fixture
def honest(broker: BrokerProcess) -> Iterator[Peer]:
    """Return a connection that existed before, and must still be served afterwards."""
    with Peer(broker.bootstrap_servers) as peer:
        assert peer.fetch(T, 0).records
        yield peer
        assert peer.fetch(T, 0).records
        assert broker.rss() < 100 * MIB


def hostile(broker: BrokerProcess, data: bytes, then_close: bool = False) -> None:
    """Send bytes on a separate connection; wait for the broker to respond or close it."""
    with Peer(broker.bootstrap_servers) as peer:
        try:
            peer.socket.sendall(data)
            if not then_close:
                peer.is_closed()
        except ConnectionError:
            return


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@pytest.mark.usefixtures("honest")
@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 100 * MIB + 1, 0, 1, 7])
def test_lengths_that_no_request_has(length: int, broker: BrokerProcess) -> None:
    hostile(broker, struct.pack(">i", length) + b"\0" * max(0, min(length, 7)))


@pytest.mark.usefixtures("honest")
def test_half_a_frame_and_then_nothing(broker: BrokerProcess) -> None:
    for data in (
        b"\0",
        b"\0\0\0",
        struct.pack(">i", 90 * MIB) + b"\0" * 100,
        framed(b"\0" * 9)[:9],
    ):
        hostile(broker, data, then_close=True)


@pytest.mark.usefixtures("honest")
def test_many_large_frames_that_never_end_cost_what_arrived(broker: BrokerProcess) -> None:
    peers = [Peer(broker.bootstrap_servers) for _ in range(100)]
    try:
        for peer in peers:
            peer.socket.sendall(struct.pack(">i", 99 * MIB) + b"\0" * 1000)
        with Peer(broker.bootstrap_servers) as other:
            assert other.fetch(T, 0).records
        assert broker.rss() < 100 * MIB
    finally:
        for peer in peers:
            peer.socket.close()


@pytest.mark.usefixtures("honest")
def test_random_frames(broker: BrokerProcess) -> None:
    chance = random.Random(5)
    for _ in range(200):
        hostile(broker, framed(chance.randbytes(chance.randrange(40))), then_close=True)
        hostile(broker, chance.randbytes(chance.randrange(400)), then_close=True)


@pytest.mark.usefixtures("honest")
@pytest.mark.parametrize("key", [15, 50, 69])
def test_millions_of_questions_in_one_request(key: int, broker: BrokerProcess) -> None:
    """DescribeGroups, users and consumer groups: without a limit, 60 seconds and 800 MiB."""
    version = SERVED[key].last
    count = 2_000_000
    names = b"\x81\x89\x7a" + (b"\x02g" if key != 50 else b"\x01\0") * count
    body = struct.pack(">hhih", key, version, 1, -1) + b"\0" + names + b"\0\0"
    hostile(broker, framed(body))


@pytest.mark.usefixtures("honest")
@pytest.mark.parametrize("key", [-1, 4, 17, 22, 68, 999])
def test_apis_that_are_not_served(key: int, broker: BrokerProcess) -> None:
    hostile(broker, framed(struct.pack(">hhih", key, 0, 1, -1)))


@pytest.mark.usefixtures("honest")
def test_a_sound_header_and_garbage_for_every_version_of_every_api(
    broker: BrokerProcess,
) -> None:
    chance = random.Random(7)
    bodies = [b"", b"\xff" * 40, b"\0" * 3]
    for key, version in VERSIONS:
        head = struct.pack(">hhih", key, version, 1, -1)
        for body in (*bodies, chance.randbytes(60)):
            hostile(broker, framed(head + body), then_close=True)


def test_a_refusal_is_one_line_without_a_trace(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kohort")
    with EmbeddedBroker() as broker, Peer(broker.bootstrap_servers) as peer:
        peer.socket.sendall(framed(struct.pack(">hhih", 0, 9, 1, -1) + b"\xff" * 10))
        assert peer.is_closed()
    (line,) = [record for record in caplog.records if record.name.startswith("kohort")]
    assert "/127.0.0.1" in line.getMessage()
    assert line.exc_info is None


# ------------------------------------------------------------------------- clients that are slow


def test_a_client_that_never_reads_costs_a_bounded_amount(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with Peer(broker.bootstrap_servers) as peer:
            peer.create("t")
            value = random.Random(1).randbytes(MIB - 1000)
            for _ in range(40):
                assert peer.produce(T, batch(value)).error_code == 0
        before = broker.rss()
        with Peer(broker.bootstrap_servers, timeout_s=1) as stuck:
            request = fetch_request(T, 0, 0, 64 * MIB)
            try:
                for _ in range(10_000):  # without a limit, 80 GB of responses
                    stuck.send(request, 12)
            except TimeoutError:
                pass  # the broker stops reading its requests, as expected
            with Peer(broker.bootstrap_servers) as other:
                assert other.fetch(T, 0).records
            assert broker.rss() - before < 64 * MIB
            stuck.socket.settimeout(20)
            for _ in range(3):
                assert len(stuck.frame()) > 10 * MIB


def test_a_client_that_sends_requests_one_byte_at_a_time_is_served(broker: BrokerProcess) -> None:
    with Peer(broker.bootstrap_servers) as slow:
        for byte in framed(struct.pack(">hhih", 18, 0, 1, -1)):
            slow.socket.sendall(bytes([byte]))
        assert slow.frame()


@pytest.mark.parametrize("codec", [c for c in Compression if c is not Compression.NONE])
def test_a_bomb_that_must_be_looked_into_is_refused(codec: Compression, tmp_path: Path) -> None:
    bomb = encode_batch([Record(0, 1_000, b"key", bytes(140 * MIB))], codec=codec)
    assert len(bomb) < 8 * MIB
    with BrokerProcess(tmp_path) as broker, Peer(broker.bootstrap_servers) as peer:
        peer.create("compacted", cleanup_policy="compact", max_message_bytes=str(16 * MIB))
        refused = peer.produce(TopicPartition("compacted", 0), bomb)
        assert refused.error_code == ErrorCode.CORRUPT_MESSAGE
        assert peak_rss(broker) < 200 * MIB
        assert peer.fetch(TopicPartition("compacted", 0), 0).high_watermark == 0


def peak_rss(broker: BrokerProcess) -> int:
    """Return the broker's peak memory use in bytes."""
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024
