"""The program examples/region.py on Apache Kafka, with the worker that is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real_kafka.broker import RealKafka
from tests.region.example import played

TIMEOUT_S = 600


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_every_snapshot_is_a_cut_while_workers_come_and_go_and_die(
    real_kafka: RealKafka, tmp_path: Path
) -> None:
    servers = ("--bootstrap-servers", real_kafka.bootstrap_servers)
    result, told = played(tmp_path, *servers, timeout_s=TIMEOUT_S)
    assert (result["partitions"], result["workers"], result["killed"]) == (6, 4, 1)
    assert result["flights"] >= 20_000
    assert result["snapshots"] > 20
    assert "worker two is killed" in told
    assert "partitions 4 -> 6" in told
