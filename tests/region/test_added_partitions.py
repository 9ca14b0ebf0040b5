"""Partitions and topics that are added to a region that runs: nothing of them is passed over."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from immutables import Map

from kohort.client import AdminClient, NewTopic
from kohort.region import ParquetDirectory, RegionConsumer, read_directory
from kohort.region.machines.events import Assigned, Close
from tests.region.harness import PARTITIONS, Region
from tests.region.regions import eventually, produce, running, running_sum, worker


def rows(path: Path) -> Counter[int]:
    """Return how many rows of each partition a reader sees."""
    table = read_directory(path)
    return Counter(table.column("partition").to_pylist()) if table.num_rows else Counter()


def test_only_what_was_there_when_the_region_began_starts_by_the_setting() -> None:
    region = Region()
    region.elect()
    first, added = frozenset(PARTITIONS[:2]), frozenset(PARTITIONS[2:])
    one = region.process("one")
    one.put(Assigned(first, Map({"id": 2})))
    assert {each for seen in one.seen for each in seen.find_starts} == first
    # A second operator, which has seen the larger topic, is not misled by what it has seen.
    two = region.process("two")
    two.put(Assigned(added, Map({"id": 4})))
    assert {each for seen in two.seen for each in seen.find_beginnings} == added
    assert not any(seen.find_beginnings for seen in one.seen)
    one.put(Close())


@pytest.mark.parametrize("start", ["latest", "committed", 2**41])
def test_an_added_partition_is_read_from_its_beginning(
    start: str | int, address: str, topic: str, tmp_path: Path
) -> None:
    produce(address, topic, 4, 40)
    at_the_end = worker(address, topic, ParquetDirectory(tmp_path), start=start)
    with running(at_the_end) as (one,):
        eventually(lambda: one.completed > 0, "it has begun")
        with AdminClient(bootstrap_servers=address) as admin:
            admin.create_partitions({topic: 6})
        produce(address, topic, 6, 600)
        eventually(lambda: rows(tmp_path)[4] == rows(tmp_path)[5] == 100, "all of the added ones")
        expected = 110 if start == "committed" else 100
        eventually(lambda: rows(tmp_path)[0] == expected, "of the old ones by the start position")


def test_a_topic_that_comes_to_match_is_read_from_its_beginning(
    address: str, topic: str, tmp_path: Path
) -> None:
    one = RegionConsumer(
        f"region-{topic}",
        pattern=f"{topic}.*",
        function=running_sum,
        sink=ParquetDirectory(tmp_path),
        operator="one",
        group_id=f"group-{topic}",
        period_ms=300,
        start="latest",
        bootstrap_servers=address,
    )
    with running(one) as (process,):
        eventually(lambda: process.completed > 0, "it has begun")
        with AdminClient(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic(f"{topic}-more", 2)])
        produce(address, f"{topic}-more", 2, 200)
        eventually(lambda: rows(tmp_path).total() == 200, "all of the new topic")


def test_a_restarted_worker_knows_which_partitions_were_added(
    address: str, topic: str, tmp_path: Path
) -> None:
    with running(worker(address, topic, ParquetDirectory(tmp_path), start="latest")) as (one,):
        eventually(lambda: one.completed > 0, "it has begun")
    with AdminClient(bootstrap_servers=address) as admin:
        admin.create_partitions({topic: 5})
    produce(address, topic, 5, 500)
    with running(worker(address, topic, ParquetDirectory(tmp_path), start="latest")):
        eventually(lambda: rows(tmp_path).total() == 500, "also what came between the two runs")
