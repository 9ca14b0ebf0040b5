"""What a reader gets of a log that was damaged while the broker was down: the same on both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from kohort.errors import ErrorCode
from kohort.types import TopicPartition
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.records.header import iter_batches
from tests.broker.log.batches import batch
from tests.broker.peer import Peer
from tests.broker.processes import eventually
from tests.real_kafka.broker import RealKafka

PARTITION = TopicPartition("t", 0)
SEGMENT_BYTES = 1 << 20  # the least that Kafka takes
VALUE = b"x" * 100_000
BATCHES = 15
Answers = dict[int, tuple[int, int, int | None]]


def fill(servers: str) -> None:
    with Peer(servers) as peer:
        peer.create("t", 1)
        for _ in range(BATCHES):
            eventually(partial(takes, peer), "the partition takes records")


def takes(peer: Peer) -> bool:
    return peer.produce(PARTITION, batch(VALUE)).error_code == ErrorCode.NONE


def answers(servers: str) -> Answers:
    """Of each offset: error code, end offset and the first offset that comes."""
    with Peer(servers) as peer:
        eventually(lambda: fetch(peer, BATCHES - 1)[0] == ErrorCode.NONE, "the partition is there")
        return {offset: fetch(peer, offset) for offset in range(BATCHES)}


def fetch(peer: Peer, offset: int) -> tuple[int, int, int | None]:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    topic = FetchTopic(topic="t", partitions=(wanted,))
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, topics=(topic,))
    (found,) = peer.ask(request, 12).responses[0].partitions
    first = next(iter_batches(found.records or b""), None)
    return found.error_code, found.high_watermark, first and first[0].base_offset


@contextmanager
def our_log(path: Path) -> Iterator[tuple[str, Path]]:
    with EmbeddedBroker(path, log_segment_bytes=SEGMENT_BYTES) as broker:
        yield broker.bootstrap_servers, path / "t-0"


def ours(path: Path, damage: Callable[[Path], None]) -> Answers:
    with our_log(path) as (servers, folder):
        fill(servers)
    damage(folder)
    with our_log(path) as (servers, _):
        return answers(servers)


def theirs(path: Path, damage: Callable[[Path], None]) -> Answers:
    with RealKafka(path, {"log.segment.bytes": str(SEGMENT_BYTES)}) as kafka:
        fill(kafka.bootstrap_servers)
        kafka.stop()
        damage(kafka.log_dir / "t-0")
        kafka.start()
        return answers(kafka.bootstrap_servers)


def zero_the_first_header(folder: Path) -> None:
    change(min(folder.glob("*.log")), 0, bytes(100))


def flip_a_record_of_the_last_segment(folder: Path) -> None:
    change(max(folder.glob("*.log")), 50_000, b"y")


def change(path: Path, at: int, new: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(new)] = new
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [zero_the_first_header, flip_a_record_of_the_last_segment])
def test_readers_of_a_damaged_log_get_the_same(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    expected = theirs(tmp_path / "theirs", damage)
    found = ours(tmp_path / "ours", damage)
    assert found == expected
    codes = {code for code, _, _ in found.values()}
    is_header = damage is zero_the_first_header
    assert (ErrorCode.CORRUPT_MESSAGE in codes) == is_header
