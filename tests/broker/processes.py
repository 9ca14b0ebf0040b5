"""Broker processes that tests may kill, and waiting for conditions."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import psutil

from tests.real_kafka.broker import free_ports

DEADLINE_S = 60.0
_READY = re.compile(r"kohort broker ready on (\S+):(\d+)\n")


def eventually(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Call `condition`, which waits a little itself each time, until it is true."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"


class BrokerProcess:
    """`python -m kohort.broker` with the same directory and port at every start."""

    def __init__(self, data: Path, *options: str) -> None:
        self.data = data
        (self.port,) = free_ports(1)
        self._options = options
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Start the process and return once it serves."""
        self._process = subprocess.Popen(
            broker_command(self.data, self.port, *self._options), stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert _READY.fullmatch(line), f"not ready: {line!r}"

    def kill(self) -> None:
        """Kill the process as in a crash; does nothing after it has ended."""
        if self._process is not None:
            self._process.kill()
            self._ended(self._process)

    def stop(self) -> int:
        """Shut the process down; return its exit code."""
        self.process.terminate()
        return self._ended(self.process)

    def rss(self) -> int:
        """Return the current memory use in bytes."""
        resident: int = psutil.Process(self.process.pid).memory_info().rss
        return resident

    def cpu_s(self) -> float:
        """Return the processor time used, in seconds."""
        times = psutil.Process(self.process.pid).cpu_times()
        used: float = times.user + times.system
        return used

    def _ended(self, process: subprocess.Popen[str]) -> int:
        code = process.wait(DEADLINE_S)
        assert process.stdout is not None
        process.stdout.close()
        self._process = None
        return code


def broker_command(data: Path, port: int, *options: str) -> list[str]:
    """Return the command line of a broker."""
    command = [sys.executable, "-m", "kohort.broker", "--data", str(data), "--port", str(port)]
    return [*command, *options]
