"""Seeds that no run before has tried: groups, regions, streams and transactions in virtual time.

A failure names the seed; `kohort simulate --seed` plays it again.
"""

from __future__ import annotations

import os
import random

import pytest

from kohort.simulation.regions import running as regions
from kohort.simulation.regions.scenario import draw as draw_region
from kohort.simulation.runs.fleet import run_all, scenarios
from kohort.simulation.streams.running import run as run_streams
from kohort.simulation.streams.scenario import draw as draw_streams
from kohort.simulation.transactions.world import OK
from kohort.simulation.transactions.world import drawn as draw_transactions
from kohort.simulation.transactions.world import run as run_transactions

BLOCKS = 6
# Each block's; KOHORT_SEEDS=10 makes it ten times as many.
TIMES = int(os.environ.get("KOHORT_SEEDS", "1"))
GROUPS, REGIONS, TRANSACTIONS, STREAMS = 50 * TIMES, 80 * TIMES, 100 * TIMES, 30 * TIMES


def fresh(count: int) -> range:
    """As many seeds in a row, from a place that chance decides (pytest-randomly tells its seed)."""
    first = random.randrange(10_000, 2**31)
    return range(first, first + count)


@pytest.mark.timeout(900 * TIMES)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_rule_of_groups_is_broken(block: int) -> None:
    summary = run_all(scenarios(fresh(GROUPS)))
    found = [
        (each.scenario.protocol, each.scenario.seed, each.complaint) for each in summary.failed
    ]
    assert found == []


@pytest.mark.timeout(900 * TIMES)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_rule_of_regions_is_broken(block: int) -> None:
    outcomes = ((seed, regions.run(draw_region(seed))) for seed in fresh(REGIONS))
    assert [(seed, each.complaint) for seed, each in outcomes if not each.is_ok] == []


@pytest.mark.timeout(900 * TIMES)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_rule_of_transactions_is_broken(block: int) -> None:
    outcomes = ((seed, run_transactions(draw_transactions(seed))) for seed in fresh(TRANSACTIONS))
    assert [(seed, each.complaint) for seed, each in outcomes if each.verdict != OK] == []


@pytest.mark.timeout(900 * TIMES)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_rule_of_stream_applications_is_broken(block: int) -> None:
    outcomes = ((seed, run_streams(draw_streams(seed))) for seed in fresh(STREAMS))
    assert [(seed, each.complaint) for seed, each in outcomes if each.verdict != OK] == []
