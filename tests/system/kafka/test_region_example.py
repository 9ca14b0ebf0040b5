"""The program examples/region.py on Apache Kafka, with the worker that is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real_kafka.broker import RealKafka

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 600


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_every_snapshot_is_a_cut_while_workers_come_and_go_and_die(
    real_kafka: RealKafka, tmp_path: Path
) -> None:
    command = [sys.executable, str(ROOT / "examples" / "region.py"), "--json"]
    command += ["--bootstrap-servers", real_kafka.bootstrap_servers, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["missing"], result["too_many"]) == (0, 0)
    assert (result["partitions"], result["workers"], result["killed"]) == (6, 4, 1)
    assert result["flights"] >= 20_000
    assert result["snapshots"] > 20
    for said in (
        "worker two is killed",
        "partitions 4 -> 6",
        f"{result['flights']:,} flights, a cut",
    ):
        assert said in done.stderr
