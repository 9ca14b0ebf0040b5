"""What the operator of a query does about commands while a batch is open, without Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from kohort.region import OperatorId, ParquetDirectory, RegionPartition, read_directory
from kohort.region.machines.events import Delivered, Discarded, Stopped
from kohort.region.work import Cut, CutParts, Discard, Load, Report, Stop
from kohort.spark.checkpoint.manifest import Manifest
from kohort.spark.region.ipc import Channel, HandOver, OpenBatch
from kohort.spark.region.work import SparkWork
from kohort.types import TopicPartition

ME = OperatorId("north", "incarnation")
ONE, TWO = (RegionPartition("t", "id", number) for number in (0, 1))
ENDS = {ONE: 30, TWO: 10}
STATE = b'{"sum":1}'


class Played:
    """A work that reads `ONE` from 10 and `TWO` from 10, and what it has reported."""

    def __init__(self, folder: Path) -> None:
        self.application = folder / "application"
        source = self.application / f"source-{os.getpid()}-x"
        source.mkdir(parents=True)
        self.reports: list[Report] = []
        self.sink = ParquetDirectory(folder / "out")
        self.sink.open("region", "id", 0)
        channel = Channel(source)
        self.work = SparkWork(
            "region", ME, self.sink, self.reports.append, channel, keeps_state=True
        )
        self.work.obey(Load(ONE, 1, 10, STATE))
        self.work.obey(Load(TWO, 2, 10, b""))

    def offer(
        self, ends: Mapping[RegionPartition, int] = ENDS, limit: int | None = None
    ) -> Manifest:
        batch = self.work.offer(ends, limit, 1)
        assert batch is not None
        return batch

    def hand_over(self, batch: Manifest, **made: object) -> bool:
        return self.work.take_over(
            f"{batch.nonce}-{batch.epoch}-{batch.batch}",
            HandOver(**made),  # type: ignore[arg-type]  # fields of it
        )

    def take(self) -> list[Report]:
        found, self.reports[:] = list(self.reports), []
        return found


@pytest.fixture
def played(tmp_path: Path) -> Played:
    return Played(tmp_path)


def test_a_batch_is_over_with_its_hand_over(played: Played) -> None:
    batch = played.offer(limit=15)
    assert batch.ranges == {TopicPartition("t", 0): (10, 25), TopicPartition("t", 1): (10, 10)}
    assert (batch.region, batch.nonce, batch.operator) == ("region", "incarnation", "north")
    assert played.work.offer({ONE: 100}, None, 1) == batch  # no other one meanwhile
    found = OpenBatch.find(played.application, batch)
    assert found is not None
    assert found.states() == {TopicPartition("t", 0): STATE}
    assert played.reports == []
    assert played.hand_over(batch, states={TopicPartition("t", 0): b'{"sum":2}'})
    assert played.take() == [Delivered(ONE, 25, 1)]
    assert not played.hand_over(batch)  # once
    assert OpenBatch.find(played.application, batch) is None
    assert played.offer().ranges[TopicPartition("t", 0)] == (25, 30)


def test_a_batch_of_a_process_that_is_gone_is_not_open(played: Played) -> None:
    batch = played.offer()
    (source,) = played.application.iterdir()
    source.rename(played.application / f"source-{2**30}-x")  # more than there can be
    assert OpenBatch.find(played.application, batch) is None


def test_a_cut_waits_for_the_open_batch_and_holds_it(played: Played) -> None:
    batch = played.offer()
    played.work.obey(Cut(1, 1))
    assert played.reports == []
    writer = played.sink.task_writer("north", 1)()
    writer.write(pa.record_batch({"a": [1, 2]}))
    states = {TopicPartition("t", 0): b'{"sum":2}'}
    assert played.hand_over(batch, files=writer.close(), states=states)
    delivered, parts = played.take()
    assert delivered == Delivered(ONE, 30, 1)
    assert isinstance(parts, CutParts)
    assert dict(parts.cut.positions) == {ONE: 30, TWO: 10}
    assert parts.states == {ONE: b'{"sum":2}'}
    played.sink.publish(1, {ME: parts.cut.output})
    assert read_directory(played.sink.path)["a"].to_pylist() == [1, 2]


def test_a_partition_of_the_open_batch_stops_with_its_hand_over(played: Played) -> None:
    batch = played.offer()
    played.work.obey(Stop(frozenset({TWO})))
    assert played.take() == [Stopped(frozenset({TWO}))]  # the batch reads nothing of it
    played.work.obey(Stop(frozenset({ONE})))
    assert played.take() == []
    assert played.hand_over(batch)
    assert played.take() == [Delivered(ONE, 30, 1), Stopped(frozenset({ONE}))]
    assert played.work.offer({ONE: 100, TWO: 100}, None, 1) is None


def test_a_reset_waits_for_nothing(played: Played) -> None:
    batch = played.offer()
    played.work.obey(Cut(1, 1))
    played.work.obey(Discard(2))
    assert played.take() == [Discarded(2)]
    assert played.work.open is None
    assert not played.hand_over(batch)
    played.work.obey(Load(ONE, 3, 10, STATE))
    again = played.offer()
    assert again.ranges == {TopicPartition("t", 0): (10, 30)}
    assert not played.hand_over(batch)  # it reads the same, and is another one
    assert played.hand_over(again)
    assert played.take() == [Delivered(ONE, 30, 3)]


def test_files_of_a_dead_attempt_are_removed(played: Played) -> None:
    writer = played.sink.task_writer("north", 1)()
    writer.write(pa.table({"a": [1]}))
    (file,) = writer.close()
    assert played.hand_over(played.offer(), files=[file])
    assert (played.sink.path / file["path"]).exists()
    played.work.obey(Discard(2))
    assert not (played.sink.path / file["path"]).exists()


def test_a_void_batch_lets_the_last_checkpoint_go(played: Played) -> None:
    batch = played.offer()
    played.work.obey(Stop(frozenset({ONE, TWO})))
    played.work.obey(Cut(1, 1))
    assert played.take() == []
    played.work.void()
    stopped, parts = played.take()
    assert stopped == Stopped(frozenset({ONE, TWO}))
    assert isinstance(parts, CutParts)
    assert dict(parts.cut.positions) == {ONE: 10, TWO: 10}
    assert not played.hand_over(batch)
