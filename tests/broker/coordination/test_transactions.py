"""Transactions when the disk fails, when the broker ends between two steps, and on timeouts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.broker import EmbeddedBroker
from kohort.broker.coordination.transactions import Transactions
from kohort.broker.log.partition_log import PartitionLog
from kohort.errors import ErrorCode, KafkaError
from kohort.wire.messages.producer_ids import InitProducerIdRequest
from tests.broker.peer import Peer
from tests.broker.processes import eventually
from tests.real_kafka.transaction_histories import Player

FULL = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path, transactional_id_expiration_ms=3_600_000) as started:
        yield started


@pytest.fixture
def player(broker: EmbeddedBroker) -> Iterator[Player]:
    started = Player(broker.bootstrap_servers, "p", 2)
    assert started.init(0, "none", 4)[0] == 0
    yield started
    started.close()


def state(player: Player) -> str:
    return str(player.describe()[0][2])


def test_a_marker_that_the_disk_refuses_is_written_later(
    player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[object] = []
    append = PartitionLog.append_marker

    def refuses_twice(log: PartitionLog, *given: Any) -> None:
        if len(refused) < 2:
            refused.append(given)
            raise FULL
        append(log, *given)

    assert player.produce(0, 0, skips=False, version=12) == (0, 0)
    monkeypatch.setattr(PartitionLog, "append_marker", refuses_twice)
    assert player.end(0, commits=True, version=5)[0] == 0  # waits for completion
    assert len(refused) == 2
    assert state(player) == "CompleteCommit"
    assert player.end_of(0, 1, -1) == (0, 3)


def test_nothing_has_changed_when_the_log_refuses(
    player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = []

    def refuses(_transactions: Transactions, _record: object) -> None:
        refusals.append(1)
        if len(refusals) == 1:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no space")
        append(_transactions, _record)  # type: ignore[arg-type]  # the original arguments

    assert player.produce(0, 0, skips=False, version=12) == (0, 0)
    before, append = player.describe(), Transactions._append
    monkeypatch.setattr(Transactions, "_append", refuses)
    assert player.end(0, commits=True, version=5)[0] == 0  # retried
    assert len(refusals) == 3  # refused, prepared, complete
    assert before[0][2] == "Ongoing"
    assert state(player) == "CompleteCommit"


@pytest.mark.parametrize("committed", [True, False])
def test_markers_are_written_by_a_broker_that_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    with EmbeddedBroker(tmp_path) as broker, monkeypatch.context() as patched:
        player = Player(broker.bootstrap_servers, "p", 2)
        player.init(0, "none", 4)
        player.produce(0, 0, skips=False, version=12)
        player.commit(0, 0, 3, -1, 5)
        patched.setattr(Transactions, "_write", lambda *_: None)
        patched.setattr(Player, "settle", lambda *_: None)
        player.end(0, commits=committed, version=5)
        assert state(player) == ("PrepareCommit" if committed else "PrepareAbort")
        assert player.end_of(0, 1, -1) == (0, 0)
        player.close()
    with EmbeddedBroker(tmp_path) as broker:
        player.connect(broker.bootstrap_servers)
        assert state(player) == ("CompleteCommit" if committed else "CompleteAbort")
        assert player.end_of(0, 1, -1) == (0, 3)
        assert bool(player.positions(0, stable=True)[1]) == committed
        player.close()


def test_a_damaged_log_is_told_and_refuses_transactions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        player = Player(broker.bootstrap_servers, "p", 2)
        player.init(0, "none", 4)
        player.close()
    (segment,) = [
        each for each in tmp_path.glob("__transaction_state-*/*.log") if each.stat().st_size
    ]
    data = bytearray(segment.read_bytes())
    at = data.index(b"p-0")
    data[at] ^= 1  # the CRC no longer matches
    segment.write_bytes(data)
    with EmbeddedBroker(tmp_path) as broker, Peer(broker.bootstrap_servers) as peer:
        request = InitProducerIdRequest(transactional_id="p-0", transaction_timeout_ms=1_000)
        assert peer.ask(request, 4).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "__transaction_state cannot be loaded" in caplog.text


def test_a_transaction_that_takes_too_long_is_aborted(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.real_kafka.transaction_histories.TIMEOUT_MS", 300)
    player = Player(broker.bootstrap_servers, "late", 2)
    player.init(0, "none", 4)
    player.produce(0, 0, skips=False, version=12)
    eventually(lambda: player.end_of(0, 1, -1) == (0, 3), "it is aborted")
    assert player.produce(0, 0, skips=False, version=12)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    player.close()
