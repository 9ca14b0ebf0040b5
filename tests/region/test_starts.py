"""What a region's start may be."""

from __future__ import annotations

import time

import pytest

from kohort.region.starts import StartPosition

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
    with pytest.raises(ValueError, match=f"start {given} is no time.*pass 'committed'"):
        StartPosition.parse(given)


@pytest.mark.parametrize("given", ["", "P1D", "-P", "-PT", "yesterday", True])
def test_what_is_no_start_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="start must be earliest, latest"):
        StartPosition.parse(given)
