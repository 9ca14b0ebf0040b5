"""The programs of examples/ that need Spark, on Apache Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real_kafka.broker import RealKafka

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 900

pytestmark = pytest.mark.timeout(TIMEOUT_S + 60)


def play(name: str, address: str, out: Path, *options: str) -> tuple[dict[str, int], str]:
    """Return what an example says in the end, and on its way there."""
    command = [sys.executable, str(ROOT / "examples" / name), "--json", *options]
    command += ["--bootstrap-servers", address, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_state_moves_between_spark_applications(real_kafka: RealKafka, tmp_path: Path) -> None:
    result, said = play("region_spark.py", real_kafka.bootstrap_servers, tmp_path)
    assert (result["missing"], result["too_many"]) == (0, 0)
    assert (result["partitions"], result["workers"], result["killed"]) == (4, 2, 1)
    assert result["flights"] >= 20_000
    assert "worker north is killed" in said
    assert "application south has left in order" in said


def test_spark_reads_the_state_of_a_stream_application(
    real_kafka: RealKafka, tmp_path: Path
) -> None:
    result, _ = play("delays_app.py", real_kafka.bootstrap_servers, tmp_path, "--spark")
    assert result["flights"] >= 60_000
    assert result["wrong_totals"] == 0
    assert result["tasks_handed_over"] > 0
