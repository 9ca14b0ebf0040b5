"""Random histories of queries that share a group, every record counted: `make torture ARGS=spark`.

Runs one history after the other until the time is over. A seed that fails is printed with its plan
and what is wrong; `--seed N --runs 1` plays it again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.real_kafka.broker import RealKafka
from tests.system.spark.torture.history import History
from tests.system.spark.torture.plan import Plan, make_plan


def main(given: Sequence[str]) -> int:
    """Return how many seeds have failed, at most 100."""
    chosen = arguments(given)
    home = Path(chosen.keep or tempfile.mkdtemp(prefix="torture-"))
    end = time.monotonic() + 60 * chosen.minutes
    failed, seed = [], chosen.seed
    with RealKafka(home / "kafka") as kafka:
        while not (seed > chosen.seed and time.monotonic() > end):
            plan = make_plan(seed, chosen.steps)
            wrong = play(plan, kafka.bootstrap_servers, home / f"seed-{seed}")
            if wrong:
                failed.append(seed)
                say(f"FAILED {plan}\n" + "\n".join(wrong) + f"\nfiles: {home / f'seed-{seed}'}")
            seed += 1
            if chosen.runs and seed >= chosen.seed + chosen.runs:
                break
    say(f"{seed - chosen.seed} histories, failed: {failed or 'none'}")
    return min(len(failed), 100)


def play(plan: Plan, bootstrap: str, home: Path) -> list[str]:
    """Play a plan; what is wrong, if only that it could not be played to its end."""
    started = time.monotonic()
    say(f"seed {plan.seed}, protocol {plan.protocol}, {len(plan.steps)} steps")

    def tell(text: str) -> None:
        say(f"  {time.monotonic() - started:5.0f} s  {text}")

    with History(plan, bootstrap, home, tell) as history:
        try:
            wrong = history.play()
        except Exception as error:  # noqa: BLE001  # it belongs to its plan
            wrong = [f"{type(error).__name__}: {error}"]
        tell("FAILED" if wrong else history.summary())
    return wrong


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the first seed")
    parser.add_argument("--minutes", type=float, default=10, help="begin no history after these")
    parser.add_argument("--runs", type=int, default=0, help="histories at most; 0: no limit")
    parser.add_argument("--steps", type=int, default=24, help="steps of a history")
    parser.add_argument("--keep", help="an empty folder for what the histories leave behind")
    return parser.parse_args(given)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
