"""One seed is one run: the same whatever the order of sets and dicts is in a process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SEEDS = 8
PROGRAM = f"""
from kohort.simulation.fleet import scenarios
from kohort.simulation.running import run
for each in scenarios(range(1000, 1000 + {SEEDS})):
    print(each.seed, run(each, checkers={{}}).digest)
"""


def digests(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.timeout(300)
def test_a_seed_gives_the_same_trace_whatever_the_hash_seed() -> None:
    first = digests("1")
    assert len(first.splitlines()) == SEEDS
    assert len({line.split()[1] for line in first.splitlines()}) == SEEDS
    assert digests("4711") == first
