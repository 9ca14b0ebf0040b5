"""A full disk under the Delta table of a region: a named error, nothing lost, nothing twice."""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kohort.region import DeltaSink
from tests.region.regions import LONG_S, SCHEMA, eventually, produce, running, worker

PARTITIONS = 4


def test_what_a_full_disk_refuses_is_named_and_visible_once_later(tmp_path: Path) -> None:
    """Making the table, a commit, and the files of an operator."""
    table = tmp_path / "table"
    command = [sys.executable, "-m", "tests.region.full_table", str(table)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["made"].startswith(f"output cannot be stored in {tmp_path}/other: ")
    assert told["committed"].startswith(f"checkpoint 1 cannot be committed to {table}: ")
    assert "Nothing of it is visible, and its files are kept" in told["committed"]
    assert told["written"].startswith(f"output cannot be stored in {table}: [Errno 27]")
    for each in told.values():
        assert "File too large" in each
        assert each.isprintable()
    found = DeltaTable(table)
    assert found.version() == 2
    assert sorted(found.to_pyarrow_table()["value"].to_pylist()) == [1, 2]


def rows(path: Path) -> Counter[tuple[int, int]]:
    """Return how often each record of the topic is in the table."""
    if not DeltaTable.is_deltatable(str(path)):
        return Counter()
    table = DeltaTable(path).to_pyarrow_table()
    places = zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    return Counter(places)


def test_a_commit_that_a_full_disk_refuses_is_made_when_there_is_room(
    address: str,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_full, commit = False, DeltaTable.create_write_transaction

    def commit_unless_full(*given: Any, **named: Any) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        commit(*given, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_unless_full)
    caplog.set_level(logging.ERROR, logger="kohort.region")
    path = tmp_path / "table"
    with running(worker(address, topic, DeltaSink(path, SCHEMA))) as (one,):
        produce(address, topic, PARTITIONS, 100)
        eventually(lambda: rows(path).total() == 100, "it works")
        is_full = True
        produce(address, topic, PARTITIONS, 100, first=100)
        eventually(lambda: waiting(one.worker.state) > 1, "checkpoints go on, and wait")
        assert rows(path).total() == 100
        is_full = False
        eventually(lambda: rows(path).total() == 200, "the disk has room again")
    assert one.error is None
    assert set(rows(path).values()) == {1}
    told = [each.getMessage() for each in caplog.records if "cannot be committed" in each.message]
    assert f"to {path}: [Errno 28] No space left on device" in told[0]
    assert "will try again" in told[0]


def waiting(state: Any) -> int:
    """Return how many complete checkpoints are not visible."""
    return 0 if state is None else len(state.unpublished)
