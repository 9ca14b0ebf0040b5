"""The source of a query in a region, played call by call without a JVM; and what it refuses."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kohort.client import AdminClient, NewTopic
from kohort.region import OperatorFencedError, ParquetDirectory, RegionQueryError, SourceError
from kohort.spark.checkpoint.manifest import Manifest, ManifestError
from kohort.spark.completion.control import application_directory
from kohort.spark.options.checks import check_batch_options, check_stream_options
from kohort.spark.options.source import OptionError
from kohort.spark.options.source import parse_options as parse
from kohort.spark.region import driver
from kohort.spark.region.ipc import HandOver, OpenBatch
from kohort.spark.source.datasource import KohortDataSource, KohortStreamReader
from kohort.types import TopicPartition
from tests.region.regions import PROTOCOLS, eventually, running, visible, worker
from tests.region.regions import produce as produce_numbers
from tests.spark.brokers import bootstrap
from tests.spark.playing import PlayedQuery, options

__all__ = ["bootstrap"]

PARTITIONS = 4
SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
NEEDED = {
    **SERVERS,
    "subscribe": "a",
    "kafka.group.id": "g",
    "kafka.client.id": "north",
    "consistentRegion": "r",
}


class Played:
    """A query and its sink, which keeps the running sum of each partition."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        out: Path,
        operator: str = "north",
        protocol: str = "cooperative",
    ) -> None:
        given = options(bootstrap, topic, protocol, kafka__client__id=operator)
        given |= {"consistentRegion": f"region-{topic}", "regionPeriod": "300ms"}
        reader = KohortDataSource(given).streamReader(None)  # type: ignore[arg-type]  # the schema is not used
        assert isinstance(reader, KohortStreamReader)
        self.reader = reader
        self.sink = ParquetDirectory(out)
        self.start: dict[str, Any] = PlayedQuery.through_log(reader.initialOffset())

    def offer(self) -> bool:
        """A trigger; whether there is a next batch."""
        end = self.reader.latestOffset(self.start, ReadAllAvailable())
        is_new = json.dumps(end) != json.dumps(self.start)
        self.last, self.start = self.start, PlayedQuery.through_log(end)
        return is_new

    def write(self) -> bool | None:
        """Run the batch; whether it counts, None when it is not open."""
        batch = Manifest.from_json(self.start)
        found = OpenBatch.find(application_directory(os.getppid()), batch)
        if found is None:
            return None
        if not batch.batch:
            made = HandOver(sink=pickle.dumps(self.sink), keeps_state=True)
            return found.hand_over(made)
        states, writer = found.states(), self.sink.task_writer(batch.operator, batch.epoch)()
        after: dict[TopicPartition, bytes] = {}
        for task in self.reader.partitions(self.last, self.start):
            for rows in self.reader.read(task):
                place = TopicPartition(rows["topic"][0].as_py(), rows["partition"][0].as_py())
                state = json.loads(after.get(place) or states.get(place) or b"{}")
                made_of = []
                for offset, value in zip(rows["offset"], rows["value"], strict=True):
                    state["sum"] = state.get("sum", 0) + int(value.as_py())
                    row = {"partition": place[1], "offset": offset.as_py()}
                    made_of.append(row | {"value": int(value.as_py()), "sum": state["sum"]})
                after[place] = json.dumps(state).encode()
                writer.write(pa.RecordBatch.from_pylist(made_of))
        return found.hand_over(HandOver(writer.close(), after))

    def run(self, count: int = 1) -> None:
        """Trigger some times, and run the batch that there is."""
        for _ in range(count):
            if self.offer():
                self.write()


@contextmanager
def playing(bootstrap: str, topic: str, out: Path, **more: Any) -> Iterator[Played]:
    """A query that triggers in a thread until the end."""
    played, is_over = Played(bootstrap, topic, out, **more), threading.Event()

    def trigger() -> None:
        while not is_over.is_set():
            played.run()

    thread = threading.Thread(target=trigger)
    thread.start()
    try:
        yield played
    finally:
        is_over.set()
        thread.join()
        played.reader.stop()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_queries_and_a_worker_make_one_output(
    bootstrap: str, topic: str, tmp_path: Path, protocol: str
) -> None:
    produce_numbers(bootstrap, topic, PARTITIONS, 2_000)
    python = worker(
        bootstrap,
        topic,
        ParquetDirectory(tmp_path),
        "python",
        **{**PROTOCOLS[protocol], "group_id": f"group-of-{topic}"},
    )
    with playing(bootstrap, topic, tmp_path, protocol=protocol) as north:
        eventually(lambda: visible(tmp_path) == 2_000, "one query reads all")
        with running(python) as (plain,):
            eventually(lambda: plain.owned > 0, "the worker has its share")
            with playing(bootstrap, topic, tmp_path, operator="south", protocol=protocol):
                produce_numbers(bootstrap, topic, PARTITIONS, 2_000, first=2_000)
                eventually(lambda: visible(tmp_path) == 4_000, "all three read")
            produce_numbers(bootstrap, topic, PARTITIONS, 1_000, first=4_000)
            eventually(lambda: visible(tmp_path) == 5_000, "two read on")
        assert plain.error is None
        produce_numbers(bootstrap, topic, PARTITIONS, 1_000, first=5_000)
        eventually(lambda: visible(tmp_path) == 6_000, "one reads on")
    assert north.reader.partitions({}, north.start) == []


def test_what_spark_repeats_is_empty(bootstrap: str, topic: str, tmp_path: Path) -> None:
    produce_numbers(bootstrap, topic, PARTITIONS, 100)
    first = Played(bootstrap, topic, tmp_path)
    while not (first.offer() and Manifest.from_json(first.start).batch):
        first.write()
    assert first.reader.partitions({}, first.start)
    repeated = first.start
    first.reader.stop()  # what it had open does not count
    second = Played(bootstrap, topic, tmp_path)
    assert second.reader.partitions({}, repeated) == []
    second.start = repeated
    assert second.write() is None
    while visible(tmp_path) < 100:
        second.run()
    second.reader.stop()


def test_another_sink_is_refused(bootstrap: str, topic: str, tmp_path: Path) -> None:
    played = Played(bootstrap, topic, tmp_path)
    assert played.offer()
    (task,) = played.reader.partitions({}, played.start)
    assert list(played.reader.read(task)) == []
    with pytest.raises(RegionQueryError, match=r"writes with foreachBatch\(kohort.spark.region_"):
        played.offer()
    played.reader.stop()


def test_the_newer_process_of_a_name_wins(bootstrap: str, topic: str, tmp_path: Path) -> None:
    produce_numbers(bootstrap, topic, PARTITIONS, 100)
    older = Played(bootstrap, topic, tmp_path)
    while visible(tmp_path) < 100:
        older.run()
    with playing(bootstrap, topic, tmp_path):
        with pytest.raises(OperatorFencedError, match="has its name"):
            older.run(1_000)
        produce_numbers(bootstrap, topic, PARTITIONS, 100, first=100)
        eventually(lambda: visible(tmp_path) == 200, "the newer one goes on")
    older.reader.stop()


def test_the_present_end_is_in_a_checkpoint(bootstrap: str, topic: str, tmp_path: Path) -> None:
    for count in (100, 200):
        produce_numbers(bootstrap, topic, PARTITIONS, 100, first=count - 100)
        played = Played(bootstrap, topic, tmp_path)
        played.reader.prepareForTriggerAvailableNow()
        while played.offer():
            played.write()
        assert visible(tmp_path) == count  # before Spark is told that there is nothing more
        played.reader.stop()


MEMBER = """
import sys
from kohort.client import Consumer
bootstrap, topic = sys.argv[1:]
with Consumer(
    bootstrap_servers=bootstrap, group_id=f"group-of-{topic}", session_timeout_ms=6_000,
    partition_assignment_strategy=["range"],
) as member:
    member.subscribe([topic])
    while not member.assignment():
        member.poll(100)
    print("joined", flush=True)
    while True:
        member.poll(100)
"""


def test_the_present_end_is_read_behind_a_member_that_was_killed(
    bootstrap: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group waits for its session, and gives out nothing until that is over."""
    monkeypatch.setattr(driver, "_SHARE_WAIT_S", 0.1)
    produce_numbers(bootstrap, topic, PARTITIONS, 100)
    read_to_the_end(bootstrap, topic, tmp_path)  # a group with members is refused to a new region
    produce_numbers(bootstrap, topic, PARTITIONS, 100)
    command = [sys.executable, "-c", MEMBER, bootstrap, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as member:
        assert member.stdout is not None
        assert member.stdout.readline() == b"joined\n"
        member.kill()
    read_to_the_end(bootstrap, topic, tmp_path)
    assert visible(tmp_path) == 200


def read_to_the_end(bootstrap: str, topic: str, out: Path) -> None:
    """Run an `availableNow` query."""
    played = Played(bootstrap, topic, out, protocol="eager")
    played.reader.prepareForTriggerAvailableNow()
    while played.offer():
        played.write()
    played.reader.stop()


def test_what_runs_on_after_the_end_does_not_count(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    produce_numbers(bootstrap, topic, PARTITIONS, 100)
    played = Played(bootstrap, topic, tmp_path)
    while not (played.offer() and Manifest.from_json(played.start).batch):
        played.write()
    found = OpenBatch.find(application_directory(os.getppid()), Manifest.from_json(played.start))
    assert found is not None
    played.reader.stop()
    assert not found.hand_over(HandOver())
    with playing(bootstrap, topic, tmp_path):
        eventually(lambda: visible(tmp_path) == 100, "the next one reads it")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_that_is_made_again_ends_the_query(
    bootstrap: str, topic: str, tmp_path: Path, protocol: str
) -> None:
    """Its records would count as read, as they are before the position in the former one."""
    produce_numbers(bootstrap, topic, PARTITIONS, 100)
    played = Played(bootstrap, topic, tmp_path, protocol=protocol)
    while visible(tmp_path) < 100:
        played.run()
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.delete_topics([topic])
        admin.create_topics([NewTopic(topic, PARTITIONS)])
    produce_numbers(bootstrap, topic, PARTITIONS, 8)
    with pytest.raises(SourceError, match=f"{topic} was deleted"):
        played.run(1_000)
    played.reader.stop()


def test_a_checkpoint_of_a_region_is_no_position_elsewhere(bootstrap: str, topic: str) -> None:
    of_region = Manifest(operator="north", nonce="n", batch=7, region="r").to_json()
    query = PlayedQuery(options(bootstrap, topic))
    with pytest.raises(ManifestError, match="operator of the consistent region 'r'"):
        query.reader.latestOffset(of_region, ReadAllAvailable())
    query.reader.stop()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"kafka.client.id": ""}, "needs kafka.client.id"),
        ({"groupMode": "commitOnly"}, "needs groupMode=member"),
        ({"startingOffsets": '{"a":{"0":1}}'}, "startingOffsets by partition"),
        ({"startingOffsetsByTimestamp": '{"a":{"0":1}}'}, "startingOffsetsByTimestamp cannot"),
        ({"kafka.allow.auto.create.topics": "true"}, "no client of a region creates topics"),
        ({"minPartitions": "3"}, "minPartitions cannot be combined with consistentRegion"),
        ({"checkpointLocation": "ck"}, "the region alone holds positions"),
        ({"positions": "group"}, "the region alone holds positions"),
    ],
)
def test_what_a_region_refuses(given: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        check_stream_options(parse(NEEDED | given))


def test_a7_partitions_of_a_query_cannot_be_assigned_by_hand() -> None:
    given = {name: value for name, value in NEEDED.items() if name != "subscribe"}
    with pytest.raises(OptionError, match="needs groupMode=member with subscribe"):
        check_stream_options(parse({**given, "assign": '{"a": [0]}'}))


def test_options_of_a_region() -> None:
    with pytest.raises(OptionError, match="regionPeriod needs consistentRegion"):
        parse({**SERVERS, "subscribe": "a", "regionPeriod": "1s"})
    with pytest.raises(OptionError, match="consistentRegion is empty"):
        parse({**NEEDED, "consistentRegion": " "})
    with pytest.raises(OptionError, match=r"'a/b \.\./x' cannot be the name of a region"):
        parse({**NEEDED, "consistentRegion": "a/b ../x"})
    with pytest.raises(OptionError, match="is for streams"):
        check_batch_options(parse(NEEDED))
    with pytest.raises(OptionError, match="regionPeriod must be from"):
        parse({**NEEDED, "regionPeriod": "0s"})
    found = parse({**NEEDED, "regionPeriod": "2s", "regionMaxResets": "3"})
    assert found.region is not None
    assert (found.region.period_ms, found.region.max_resets) == (2_000, 3)
    assert found.settings["isolation.level"] == "read_committed"
