"""Resets on a broker: from where partitions are read again, under any owner."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kohort.client import ConsumerRecord
from kohort.region import KeyedState, ParquetDirectory, RegionConsumer, RegionPartition
from kohort.region.inspecting import ask
from kohort.region.machines.records import DRAIN, OPERATOR_DRIVEN, RESET
from kohort.region.machines.state import RegionState
from tests.region.regions import (
    PROTOCOLS,
    Running,
    eventually,
    new_topic,
    produce,
    running,
    running_sum,
    visible,
    worker,
)

PARTITIONS = 4


class Reads:
    """A `running_sum` that notes where each read of a partition begins, and how far it has come."""

    def __init__(self) -> None:
        self.begun: dict[int, list[int]] = defaultdict(list)
        self.ends: dict[int, int] = {}

    def __call__(
        self, partition: RegionPartition, records: Sequence[ConsumerRecord], state: KeyedState
    ) -> list[dict[str, int]]:
        number, first = partition.partition, records[0].offset
        if first != self.ends.get(number):
            self.begun[number].append(first)
        self.ends[number] = records[-1].offset + 1
        return running_sum(partition, records, state)


def made(
    servers: str, topic: str, path: Path, operator: str, reads: Reads, **settings: Any
) -> RegionConsumer:
    """Make an operator of a region with the rule of the original and checkpoints on demand."""
    usual: dict[str, Any] = {"mode": OPERATOR_DRIVEN, "rebalance": "reset", "function": reads}
    return worker(servers, topic, ParquetDirectory(path), operator, **(usual | settings))


def asked(servers: str, one: Running, what: str) -> RegionState:
    """Ask the region for something, and wait until it has happened."""
    return asyncio.run(ask(one.worker.region, {"bootstrap_servers": servers}, what))


def all_begun(reads: Reads, times: int) -> bool:
    """Whether each partition was begun so often."""
    return all(len(reads.begun[each]) >= times for each in range(PARTITIONS))


def test_a58_resets_to_the_initial_state_start_at_identical_positions(
    servers: str, tmp_path: Path
) -> None:
    """The end of the topic moves on, and partitions move to another operator."""
    topic, reads = new_topic(servers, PARTITIONS), Reads()
    produce(servers, topic, PARTITIONS, 400)
    settings: dict[str, Any] = {"start": "latest", **PROTOCOLS["consumer"]}
    one = made(servers, topic, tmp_path, "one", reads, **settings)
    with running(one) as (first,):
        eventually(lambda: first.owned == PARTITIONS and is_placed(first), "it has its starts")
        produce(servers, topic, PARTITIONS, 400, first=400)
        eventually(lambda: all_begun(reads, 1), "all partitions are read")
        assert asked(servers, first, RESET).completed == 0
        eventually(lambda: all_begun(reads, 2), "the first reset has led to the start")
        produce(servers, topic, PARTITIONS, 400, first=800)
        two = made(servers, topic, tmp_path, "two", reads, **settings)
        with running(two) as (second,):
            eventually(lambda: second.owned == PARTITIONS // 2, "the second one has its share")
            eventually(lambda: all_begun(reads, 3), "the second reset has led to the start")
            assert first.completed == 0
    assert {each for begun in reads.begun.values() for each in begun} == {100}


def is_placed(one: Running) -> bool:
    """Whether the log says of each partition where it starts."""
    state = one.worker.state
    return state is not None and all(each.start is not None for each in state.partitions.values())


@pytest.mark.parametrize(
    ("servers", "protocol"),
    [("address", "consumer"), ("real_kafka", "eager"), ("real_kafka", "consumer")],
    indirect=["servers"],
)
def test_a57_a_reset_after_partitions_moved_starts_at_the_merged_checkpoint(
    servers: str, tmp_path: Path, protocol: str
) -> None:
    """Two operators contribute to the checkpoint; of three that go back each reads others' too."""
    topic, reads = new_topic(servers, PARTITIONS), Reads()
    names = ("one", "two", "three")
    settings = PROTOCOLS[protocol]
    one, two, three = (made(servers, topic, tmp_path, n, reads, **settings) for n in names)
    with running(one, two) as (first, second):
        eventually(lambda: first.owned == second.owned == PARTITIONS // 2, "both work")
        produce(servers, topic, PARTITIONS, 400)
        eventually(lambda: reads.ends == dict.fromkeys(range(PARTITIONS), 100), "all is read")
        merged = asked(servers, first, DRAIN)
        positions = {each.partition: known.position for each, known in merged.partitions.items()}
        assert positions == dict.fromkeys(range(PARTITIONS), 100)
        owners = {each: known.owner for each, known in merged.partitions.items()}
        assert len(set(owners.values())) == 2
        reads.begun.clear()
        produce(servers, topic, PARTITIONS, 200, first=400)
        eventually(lambda: reads.ends == dict.fromkeys(range(PARTITIONS), 150), "more is read")
        assert not any(reads.begun.values())
        with running(three) as (third,):
            eventually(lambda: third.owned > 0, "partitions have moved")
            eventually(lambda: all_begun(reads, 1), "the region has gone back")
            eventually(lambda: reads.ends == dict.fromkeys(range(PARTITIONS), 150), "and forth")
            state = asked(servers, first, DRAIN)
            assert state.completed > merged.completed
            assert {each: known.owner for each, known in state.partitions.items()} != owners
            eventually(lambda: visible(tmp_path) == 600, "all is visible, once")
    assert {each for begun in reads.begun.values() for each in begun} == {100}
