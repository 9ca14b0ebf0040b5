"""Faults of the design of the original, met by workers on a broker."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kohort.client import ConsumerRecord
from kohort.region import (
    KeyedState,
    OperatorFencedError,
    OperatorId,
    ParquetDirectory,
    RegionPartition,
)
from kohort.region.inspecting import ask
from kohort.region.machines.records import RESET
from kohort.region.operating import Operating
from kohort.values import replace
from kohort.wire.codec import frame as frames
from kohort.wire.messages.offsets import OffsetCommitResponse
from tests.client.cutting_proxy import Asked, CuttingProxy
from tests.region.regions import (
    LONG_S,
    Running,
    eventually,
    produce,
    running,
    running_sum,
    visible,
    worker,
)

PARTITIONS = 4
PRODUCE, FETCH, OFFSET_COMMIT = 0, 1, 8
OFFSET_METADATA_TOO_LARGE = 12


class NoTopics(CuttingProxy):
    """Cuts each connection on which records are read or written, as long as it is told to.

    Connections to the coordinator of a group stay.
    """

    def __init__(self, broker: str) -> None:
        super().__init__(broker, lambda _: False)
        self.is_cut = threading.Event()
        self.cuts = 0
        self._here = threading.local()

    def _requests(
        self, client: socket.socket, broker: socket.socket, asked: dict[int, Asked]
    ) -> None:
        self._here.client = client
        super()._requests(client, broker, asked)

    def answer_itself(self, frame: bytes) -> bytes | None:
        if self.is_cut.is_set() and frames.peek_request(memoryview(frame))[0] in (PRODUCE, FETCH):
            self.cuts += 1
            self._here.client.shutdown(socket.SHUT_RDWR)
            return b""  # the broker does not get it
        return None


def assigned(one: Running) -> int:
    """Return how many partitions the group has given to a worker."""
    return one.worker.metrics()["nPartitionsAssigned"]


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_a_control_topic_that_cannot_be_reached_holds_a_revocation_for_a_while_only(
    address: str, topic: str, tmp_path: Path, protocol: str
) -> None:
    """The first worker cannot say that it releases: the region goes back, and loses nothing."""
    sink = ParquetDirectory(tmp_path)
    settings: dict[str, Any] = {"partition_assignment_strategy": [protocol]}
    settings |= {"drain_timeout_ms": 2_000, "session_timeout_ms": 60_000}
    produce(address, topic, PARTITIONS, 2_000)
    with NoTopics(address) as proxy:
        cut_off = worker(proxy.bootstrap_servers, topic, sink, "one", **settings)
        with running(cut_off) as (one,):
            eventually(lambda: visible(tmp_path) == 2_000, "the first one works")
            proxy.is_cut.set()
            produce(address, topic, PARTITIONS, 2_000, first=2_000)
            with running(worker(address, topic, sink, "two", **settings)) as (two,):
                given = "the group gives partitions on, long before a session is over"
                eventually(lambda: assigned(two) > 0, given, within_s=40)
                assert proxy.cuts > 0
                assert visible(tmp_path) == 2_000
                proxy.is_cut.clear()
                eventually(lambda: visible(tmp_path) == 4_000, "all is visible, once")
                produce(address, topic, PARTITIONS, 500, first=4_000)
                eventually(lambda: visible(tmp_path) == 4_500, "the region goes on")
    assert one.error is None or isinstance(one.error, OperatorFencedError)
    assert two.error is None


class BrokenPublisher(ParquetDirectory):
    """Has a fault of its own, which no controller expects, until it is mended."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.faults = 0
        self.is_mended = threading.Event()

    def publish(self, checkpoint: int, outputs: Mapping[OperatorId, str]) -> None:
        if visible(self.path) and not self.is_mended.is_set():
            self.faults += 1
            raise ZeroDivisionError("in the sink")
        super().publish(checkpoint, outputs)


def test_an_exception_of_the_sink_is_tried_again_and_loses_nothing(
    address: str, topic: str, tmp_path: Path
) -> None:
    produce(address, topic, PARTITIONS, 500)
    sink = BrokenPublisher(tmp_path)
    with running(worker(address, topic, sink)) as (one,):
        eventually(lambda: visible(tmp_path) > 0, "something is visible")
        produce(address, topic, PARTITIONS, 500, first=500)
        eventually(lambda: sink.faults > 1, "it is tried again")
        assert not one.is_over
        sink.is_mended.set()
        eventually(lambda: visible(tmp_path) == 1_000, "all is visible")
    assert one.error is None


def test_an_exception_in_the_event_thread_ends_run_and_loses_nothing(
    address: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(address, topic, PARTITIONS, 500)

    def fail(_self: Operating) -> None:
        raise ZeroDivisionError("in the event thread")

    with running(worker(address, topic, ParquetDirectory(tmp_path))) as (one,):
        eventually(lambda: visible(tmp_path) == 500, "it works")
        with monkeypatch.context() as broken:
            broken.setattr(Operating, "_press_back", fail)
            produce(address, topic, PARTITIONS, 500, first=500)
            one.join()
    assert isinstance(one.error, ZeroDivisionError)
    with running(worker(address, topic, ParquetDirectory(tmp_path))):
        eventually(lambda: visible(tmp_path) == 1_000, "the next one does the rest")


class RefusedCommits(CuttingProxy):
    """Says of each commit that the offset of partition 0 was refused."""

    def __init__(self, broker: str) -> None:
        super().__init__(broker, lambda _: False)
        self.refused = 0
        self._versions: dict[int, int] = {}

    def answer_itself(self, frame: bytes) -> None:
        key, version, _ = frames.peek_request(memoryview(frame))
        self._versions[key] = version

    def changed(self, key: int, frame: bytes) -> bytes:
        if key != OFFSET_COMMIT:
            return frame
        answer: Any = frames.decode_response(
            OffsetCommitResponse, self._versions[key], memoryview(frame)
        )
        changed = replace(answer, topics=tuple(self._without_0(each) for each in answer.topics))
        number = frames.correlation_id_of(memoryview(frame))
        return bytes(frames.encode_response(changed, self._versions[key], number)[4:])

    def _without_0(self, of_topic: Any) -> Any:
        self.refused += 1
        return replace(
            of_topic,
            partitions=tuple(
                replace(each, error_code=OFFSET_METADATA_TOO_LARGE)
                if each.partition_index == 0
                else each
                for each in of_topic.partitions
            ),
        )


def test_a_refused_commit_of_one_partition_stops_nothing(
    address: str, topic: str, tmp_path: Path
) -> None:
    """Commits are for display: checkpoints go on, and states that they replace are removed."""
    produce(address, topic, PARTITIONS, 400)
    with RefusedCommits(address) as proxy:
        one = worker(proxy.bootstrap_servers, topic, ParquetDirectory(tmp_path))
        with running(one) as (running_one,):
            for count in range(400, 2_400, 400):
                eventually(lambda: visible(tmp_path) == count, "it goes on")  # noqa: B023  # called within the round
                produce(address, topic, PARTITIONS, 400, first=count)
            eventually(lambda: visible(tmp_path) == 2_400, "all is visible")
            eventually(lambda: proxy.refused > 3, "commits are refused")
            inner = one._worker
            assert inner is not None
            assert inner.operating is not None
            states = inner.operating._states._stored
            eventually(lambda: all(len(each) == 1 for each in states.values()), "no old states")
    assert running_one.error is None


class Gate:
    """A `running_sum` whose first call waits; it notes where each call begins."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []
        self.may_go_on = threading.Event()

    def __call__(
        self, partition: RegionPartition, records: Sequence[ConsumerRecord], state: KeyedState
    ) -> list[dict[str, int]]:
        self.calls.append((partition.partition, records[0].offset))
        assert self.may_go_on.wait(LONG_S)
        return running_sum(partition, records, state)


def test_what_was_fetched_before_a_reset_is_not_given_to_the_function_after_it(
    address: str, topic: str, tmp_path: Path
) -> None:
    gate = Gate()
    one = worker(address, topic, ParquetDirectory(tmp_path), function=gate, period_ms=60_000)
    produce(address, topic, PARTITIONS, 2_000)
    with running(one) as (running_one,):
        eventually(lambda: bool(gate.calls), "the function was called")
        inner = one._worker
        assert inner is not None
        eventually(lambda: inner.inbox.pending > 200, "more was fetched")
        client = {"bootstrap_servers": address}
        asked = threading.Thread(target=lambda: asyncio.run(ask(one.region, client, RESET)))
        asked.start()
        eventually(lambda: one.state is not None and one.state.attempt == 2, "a reset begins")
        gate.may_go_on.set()
        asked.join(LONG_S)
        assert not asked.is_alive()
        eventually(lambda: len(gate.calls) > 2 * PARTITIONS, "it reads again")
        running_one.stop()
    assert visible(tmp_path) > 0
    first, *again = gate.calls
    assert first[1] == 0
    for partition in range(PARTITIONS):
        starts = [offset for at, offset in again if at == partition]
        assert starts == sorted(set(starts))
        assert starts[:1] in ([0], [])
