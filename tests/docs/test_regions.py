"""The example of docs/region.md, and the one in examples/, do what they say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from deltalake import DeltaTable

from kohort import EmbeddedBroker, Producer
from tests.docs.test_readme import python_blocks
from tests.region.regions import eventually

ROOT = Path(__file__).parents[2]
DEADLINE_S = 100


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
