"""One seed is one run: the same whatever the order of sets and dicts is in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.simulation.size import TWICE

PROGRAM = f"""
from kohort.simulation.runs.fleet import scenarios
from kohort.simulation.runs.running import run
from kohort.simulation.groups.world import NO_CHECKERS
for each in scenarios(range(1000, 1000 + {TWICE})):
    print(each.seed, run(each, checkers=NO_CHECKERS).digest)
"""


def digests(hash_seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.timeout(600)
def test_a_seed_gives_the_same_trace_whatever_the_hash_seed() -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(digests, ("1", "4711"))
    assert len({line.split()[1] for line in first}) == len(first) == TWICE
    assert second == first
