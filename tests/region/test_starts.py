"""What a region's start may be, and topics that are not there then."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from kohort.client import AdminClient
from kohort.region import ParquetDirectory, RegionConsumer
from kohort.region.starts import StartPosition
from tests.region.regions import eventually, running, running_sum

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("given", "ago_ms"),
    [("-PT6H", 6 * HOUR_MS), ("-P1DT30M", 24.5 * HOUR_MS), ("-PT1.5S", 1_500)],
)
def test_a_duration_is_a_time_before_now(given: str, ago_ms: float) -> None:
    before_ms = time.time() * 1000
    found = StartPosition.parse(given)
    assert found.name == ""
    assert before_ms - ago_ms - 1 <= found.timestamp_ms <= time.time() * 1000 - ago_ms


@pytest.mark.parametrize("given", [0, 42, -1, 10**11 - 1])
def test_an_offset_is_refused(given: int) -> None:
    with pytest.raises(ValueError, match=f"start {given} is not a time.*pass 'committed'"):
        StartPosition.parse(given)


@pytest.mark.parametrize("given", ["", "P1D", "-P", "-PT", "yesterday", True])
def test_what_is_no_start_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="start must be earliest, latest"):
        StartPosition.parse(given)


def test_a_topic_that_is_not_there_is_told_at_once(
    address: str, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    missing = f"{topic}-flihgts"
    made = RegionConsumer(
        f"region-{topic}", topic, missing, function=running_sum, sink=ParquetDirectory(tmp_path),
        operator="one", group_id=f"group-{topic}", bootstrap_servers=address,
    )  # fmt: skip
    with running(made) as (one,), AdminClient(bootstrap_servers=address) as admin:
        eventually(lambda: one.owned == 4, "it works")
        assert missing not in admin.list_topics()
    assert one.error is None
    (warning,) = [each for each in caplog.records if "there is no topic" in each.getMessage()]
    assert warning.levelno == logging.WARNING
    assert f"there is no topic {missing}, or" in warning.getMessage()
    assert "one/" in warning.getMessage()
