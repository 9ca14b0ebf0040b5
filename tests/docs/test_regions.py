"""The example of docs/region.md, and those in examples/, do what they say."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kohort import EmbeddedBroker, Producer
from tests.docs.test_readme import python_blocks
from tests.region.example import PROGRAM, played
from tests.region.regions import eventually

ROOT = Path(__file__).parents[2]
DEADLINE_S = 100
STORY_S = 240  # it has deadlines of its own, which say what it waited for


def test_two_workers_come_and_go() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "region_of_workers.py")],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "3000 flights are visible; a second worker joins",
        "6000 flights are visible; the first worker leaves",
        "9000 rows, the last sum is 2250, as it must be",
    ]


@pytest.mark.counts_records
@pytest.mark.timeout(STORY_S + 30)
def test_a_reader_sees_cuts_while_workers_come_and_go(tmp_path: Path) -> None:
    """The short form, in which no worker is killed; tests/system/kafka has the whole story."""
    result, _ = played(tmp_path, "--quick", timeout_s=STORY_S)
    assert (result["partitions"], result["workers"], result["killed"]) == (6, 4, 0)
    assert result["flights"] >= 1_000
    assert result["snapshots"] > 5


def test_the_reader_knows_what_is_no_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PROGRAM.parent)
    checked = runpy.run_path(str(PROGRAM))["checked"]
    first, second, other = (0, 0, "N1", 5, 5), (0, 1, "N1", 2, 7), (1, 0, "N1", 2, 2)
    cut = [other, second, first]
    assert checked(cut, Counter({0: 1})) == ("", Counter({0: 2, 1: 1}))
    for rows, wrong in (
        ([*cut, first], "partition 0, offset 0 where offset 1 belongs"),
        ([second, other], "partition 0, offset 1 where offset 0 belongs"),
        ([first, (0, 1, "N1", 2, 2)], "partition 0, offset 1: total 2, not 7"),
        ([first, second], "partition 1: fewer flights than the version before"),
    ):
        assert checked(rows, Counter({1: 1}))[0] == wrong


def test_the_worker_of_the_page(tmp_path: Path) -> None:
    (code,) = python_blocks((ROOT / "docs" / "region.md").read_text())
    table = tmp_path / "delays"

    def rows() -> int:
        return (
            DeltaTable(table).to_pyarrow_table().num_rows if (table / "_delta_log").is_dir() else 0
        )

    with EmbeddedBroker() as broker:
        broker.create_topic("flights", 2)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(100):
                producer.send("flights", b"3", key=b"D-%d" % (number % 4))
        code = code.replace("localhost:9092", broker.bootstrap_servers)
        code = code.replace("/shared/delays", str(table))
        program = subprocess.Popen([sys.executable, "-c", code])
        try:
            eventually(lambda: rows() == 100, "the page's worker shows all flights", DEADLINE_S)
        finally:
            os.kill(program.pid, signal.SIGKILL)
            program.wait()
    found = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert max(each["delay"] for each in found if each["aircraft"] == "D-0") == 75
