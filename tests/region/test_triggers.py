"""Operators that ask for checkpoints by themselves, in regions that are operator-driven."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kohort.errors import ConfigError
from kohort.region import ParquetDirectory
from tests.region.regions import eventually, produce, running, running_sum, visible, worker

PARTITIONS, COUNT = 4, 400


def seen(path: Path) -> int:
    """Return how many rows a reader sees."""
    return visible(path) if (path / "_region").is_dir() else 0


def test_a49_a_checkpoint_follows_each_so_many_records(
    address: str, topic: str, tmp_path: Path
) -> None:
    produce(address, topic, PARTITIONS, COUNT)
    sink = ParquetDirectory(tmp_path)
    with running(worker(address, topic, sink, mode="operator-driven", trigger_count=1)) as (one,):
        eventually(lambda: seen(tmp_path) == COUNT, "all is visible")
        assert one.completed >= 1


def test_a49_the_function_may_ask_for_a_checkpoint(
    address: str, topic: str, tmp_path: Path
) -> None:
    produce(address, topic, PARTITIONS, COUNT)

    def asking(partition: Any, records: Any, state: Any) -> Any:
        if records[-1].value == b"%d" % (COUNT - 1):
            made.make_consistent("the last one has come")
        return running_sum(partition, records, state)

    sink = ParquetDirectory(tmp_path)
    made = worker(address, topic, sink, mode="operator-driven", function=asking)
    with running(made) as (one,):
        eventually(lambda: seen(tmp_path) > 0, "a checkpoint is made and visible")
        assert one.completed == 1


def test_a_periodic_region_has_no_trigger(address: str, topic: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="trigger_count is for mode='operator-driven'"):
        worker(address, topic, ParquetDirectory(tmp_path), trigger_count=10)
