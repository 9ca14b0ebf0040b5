"""Standard output that is full, closed, or a pipe that nobody reads: no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker.processes import DEADLINE_S

KOHORT = [sys.executable, "-m", "kohort"]
CLOSED = ["sh", "-c", 'exec "$@" >&-', "sh"]
PRINTING = [
    ["--version"],
    ["--help"],
    ["groups", "--help"],
    ["simulate", "--runs", "1", "--minutes", "1", "--protocol", "classic"],
    ["simulate", "--runs", "1", "--minutes", "1", "--protocol", "classic", "--json"],
    ["simulate", "--runs", "1", "--protocol", "region"],
]


def pipe_without_reader() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def ran(command: list[str], output: int, unbuffered: str = "") -> tuple[int, list[str]]:
    """Exit code, and lines on standard error."""
    try:
        done = subprocess.run(
            command,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    finally:
        os.close(output)
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize("arguments", PRINTING)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_output_is_told_in_one_line(arguments: list[str], unbuffered: str) -> None:
    assert ran([*KOHORT, *arguments], full(), unbuffered) == (
        1,
        ["kohort: standard output cannot be written: No space left on device"],
    )


@pytest.mark.parametrize("arguments", [["--version"], PRINTING[-1]])
def test_an_output_that_nobody_reads_ends_quietly(arguments: list[str]) -> None:
    assert ran([*KOHORT, *arguments], pipe_without_reader()) == (1, [])


@pytest.mark.parametrize("arguments", [["--version"], PRINTING[-1]])
def test_a_closed_output_gets_nothing(arguments: list[str]) -> None:
    assert ran([*CLOSED, *KOHORT, *arguments], full()) == (0, [])


def test_an_error_is_told_though_the_output_is_full(tmp_path: Path) -> None:
    wrong = ["simulate", "--json", "--replay", str(tmp_path / "missing")]
    code, lines = ran([*KOHORT, *wrong], full())
    assert code == 1
    assert "missing" in lines[0]
    assert lines[1:] == ["kohort: standard output cannot be written: No space left on device"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("full", "No space left on device"),
        ("closed", "Bad file descriptor"),
        ("unread", "Broken pipe"),
    ],
)
def test_a_broker_serves_without_an_output(tmp_path: Path, kind: str, reason: str) -> None:
    command = [*KOHORT, "broker", "--data", str(tmp_path)]
    output = pipe_without_reader() if kind == "unread" else full()
    broker = subprocess.Popen(
        [*CLOSED, *command] if kind == "closed" else command,
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(output)
    try:
        assert broker.stderr is not None
        line = broker.stderr.readline()  # waits until it would be ready
        assert line.startswith("WARNING kohort.broker.process: cannot write the line")
        assert "kohort broker ready on 127.0.0.1:" in line
        assert line.endswith(f"{reason}\n")
        broker.terminate()
        assert broker.wait(DEADLINE_S) == 0
        assert broker.stderr.read() == ""
    finally:
        broker.kill()
        broker.communicate()
