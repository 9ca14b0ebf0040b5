"""Histories with kills: the brokers that they run on, and their command line."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.broker.processes import BrokerProcess
from tests.real_kafka.broker import RealKafka

BROKERS = ("embedded", "kafka")


class Killable(Protocol):
    """A broker that is killed and started again on the same log and address."""

    @property
    def bootstrap_servers(self) -> str:
        """Where it listens."""

    def kill(self) -> None:
        """End it at once."""

    def start(self) -> object:
        """Start it again; it serves when this returns."""


# Plays a history on a broker: with a fresh directory, a seed, and so many kills. It returns what to
# say of it, and how often what was killed.
Play = Callable[[Killable, Path, int, int], tuple[str, Counter[str]]]


@contextmanager
def broker(kind: str, path: Path) -> Iterator[Killable]:
    """Run a broker in a process of its own, `embedded` or `kafka`."""
    if kind == "kafka":
        with RealKafka(path) as kafka:
            yield kafka
    else:
        with BrokerProcess(path) as embedded:
            yield embedded


def passed(seconds: float) -> Callable[[], bool]:
    """Return a function that says whether so much time has passed since."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def play_on_each(name: str, play: Play, about: str | None, arguments: Sequence[str]) -> int:
    """Play one history on each kind of broker, or on one; print a line of each.

    Args:
        name: Begins the name of the directory of each.
        play: The history.
        about: What `--help` says.
        arguments: Of the command line.
    """
    parser = argparse.ArgumentParser(prog="make torture", description=about)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--broker", choices=BROKERS, action="append")
    given = parser.parse_args(arguments)
    for kind in given.broker or BROKERS:
        path = Path(tempfile.mkdtemp(prefix=f"kohort-{name}-{kind}-{given.seed}-"))
        began = time.monotonic()
        with broker(kind, path / "broker") as running:
            told, killed = play(running, path, given.seed, given.kills)
        kills = ", ".join(f"{what} {number}" for what, number in sorted(killed.items()))
        sys.stdout.write(
            f"seed {given.seed} {kind}: {told}; {killed.total()} kills ({kills}),"
            f" {time.monotonic() - began:.0f} s\n"
        )
        sys.stdout.flush()
    return 0
