"""The disk of one worker's machine is full, under a Delta table: others do its work."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from kohort.broker import EmbeddedBroker
from kohort.region import DeltaSink
from tests.region.process import DELTA
from tests.region.regions import (
    LONG_S,
    PROTOCOLS,
    SCHEMA,
    eventually,
    new_topic,
    produce,
    running,
    worker,
)
from tests.region.test_full_table import PARTITIONS, rows


def test_a_worker_whose_disk_is_full_ends_by_name_and_nothing_is_lost(tmp_path: Path) -> None:
    """The limit is one of its process, so that no file that it writes may grow."""
    table = tmp_path / "table"
    with EmbeddedBroker(offsets_topic_num_partitions=4) as broker:
        address = broker.bootstrap_servers
        topic = new_topic(address, PARTITIONS)
        command = [sys.executable, "-m", "tests.region.process"]
        command += [address, topic, f"{DELTA}{table}", "one", "cooperative"]
        settings: dict[str, Any] = {"period_ms": 500, **PROTOCOLS["cooperative"]}
        two = worker(address, topic, DeltaSink(table, SCHEMA), "two", **settings)
        with (
            subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as one,
            running(two) as (second,),
        ):
            eventually(lambda: second.owned == PARTITIONS // 2, "both have their share")
            produce(address, topic, PARTITIONS, 200)
            eventually(lambda: rows(table).total() == 200, "both work")
            _, hard = resource.prlimit(one.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(one.pid, resource.RLIMIT_FSIZE, (10, hard))
            produce(address, topic, PARTITIONS, 200, first=200)
            _, told = one.communicate(timeout=LONG_S)
            eventually(lambda: rows(table).total() == 400, "the other one does its work")
    assert one.returncode == 1
    assert f"SinkError: output cannot be stored in {table}: [Errno 27]" in told
    assert second.error is None
    assert set(rows(table).values()) == {1}
