"""The source's process: told to end, left behind, or asleep for too long."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.playing import committed, describe, produce

ROOT = Path(__file__).parents[2]
LONG, SHORT = "45000", "6000"
# Longer than a source takes to leave its group.
PATIENCE_S = 20.0
# Runs its arguments as a child and dies with it alive, as a killed JVM does.
PARENT = "import subprocess, sys; subprocess.run(sys.argv[1:])"


class Runner:
    """A source's process below one that plays the JVM."""

    def __init__(self, bootstrap: str, topic: str, session_timeout_ms: str) -> None:
        module = ["-m", "tests.spark.runner", bootstrap, topic, session_timeout_ms]
        self.jvm = subprocess.Popen(
            [sys.executable, "-c", PARENT, sys.executable, *module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.pid = int(self.answer().split()[1])

    def ask(self, command: str) -> str:
        assert self.jvm.stdin is not None
        self.jvm.stdin.write(command + "\n")
        self.jvm.stdin.flush()
        return self.answer()

    def answer(self) -> str:
        assert self.jvm.stdout is not None
        return self.jvm.stdout.readline().strip()

    def has_said_something(self, timeout_s: float) -> bool:
        assert self.jvm.stdout is not None
        return bool(select.select([self.jvm.stdout], [], [], timeout_s)[0])

    def rest(self) -> str:
        """What it prints until it has ended."""
        assert self.jvm.stdout is not None
        return self.jvm.stdout.read()

    def close(self) -> None:
        self.jvm.kill()
        self.jvm.wait(20)
        for stream in (self.jvm.stdin, self.jvm.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def runner(bootstrap: str, topic: str, request: pytest.FixtureRequest) -> Iterator[Runner]:
    """A query with one finished and one open batch."""
    produce(bootstrap, topic, {0: 5})
    process = Runner(bootstrap, topic, getattr(request, "param", LONG))
    assert process.ask("offer") == "True"
    assert process.ask("write") == "5"
    produce(bootstrap, topic, {0: 3})
    while process.ask("offer") != "True":
        pass
    yield process
    process.close()


def test_sigterm_leaves_the_group_once(bootstrap: str, topic: str, runner: Runner) -> None:
    """Spark sends it twice; the second must not hurt.

    Python does not see signals that come right before it begins to wait for input until another one
    comes, or until Spark's socket is closed.
    """
    os.kill(runner.pid, signal.SIGTERM)
    os.kill(runner.pid, signal.SIGTERM)
    while not runner.has_said_something(PATIENCE_S):
        os.kill(runner.pid, signal.SIGTERM)
    assert runner.rest() == "stopped\n"
    assert describe(bootstrap, topic).members == []
    assert committed(bootstrap, topic, [0]) == {0: 5}


def test_a_process_that_is_left_behind_leaves_the_group(
    bootstrap: str, topic: str, runner: Runner
) -> None:
    runner.jvm.kill()
    assert runner.rest() == ""
    assert describe(bootstrap, topic).members == []
    assert committed(bootstrap, topic, [0]) == {0: 5}


@pytest.mark.parametrize("runner", [SHORT], indirect=True)
def test_a_query_that_the_group_gave_up_fails(bootstrap: str, topic: str, runner: Runner) -> None:
    os.kill(runner.pid, signal.SIGSTOP)
    deadline = time.monotonic() + 30
    while describe(bootstrap, topic).members:
        assert time.monotonic() < deadline
    os.kill(runner.pid, signal.SIGCONT)
    answers = [runner.ask("write")]
    while answers[-1] in ("3", "False"):
        answers.append(runner.ask("offer"))
    assert answers[-1] == "MembershipLostError"
    assert committed(bootstrap, topic, [0]) == {0: 5}
