"""A broker in its own process, which tests may kill, stop and pause."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

from kohort.testing.harness import KafkaHarness
from kohort.testing.harness_clients import DEADLINE_S, HarnessError

_READY = re.compile(r"kohort broker ready on (\S+)\s")


class KafkaProcess:
    """An embedded broker in its own process, which tests may kill, stop and pause.

    Args:
        data: Its data directory.
        options: Options of `kohort broker`.
    """

    def __init__(self, data: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.bootstrap_servers = f"127.0.0.1:{port}"
        words = ["--data", str(data), "--port", str(port), *options]
        self._command = [sys.executable, "-m", "kohort.broker", *words]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def kafka(self) -> KafkaHarness:
        """The harness for this broker."""
        return KafkaHarness(self.bootstrap_servers)

    def start(self) -> None:
        """Start it with its existing data, and return once it serves clients.

        Raises:
            HarnessError: It is already running, or did not start.
        """
        if self._process is not None:
            raise HarnessError("the broker is already running")
        self._process = subprocess.Popen(  # noqa: S603  # our own command
            self._command, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not _READY.match(line):
            code = self._ended()
            raise HarnessError(f"the broker did not start: it said {line!r} and ended with {code}")

    def kill(self) -> None:
        """Kill it, as in a crash (SIGKILL); do nothing if it is not running."""
        if self._process is not None:
            self._process.kill()
            self._ended()

    def stop(self) -> int:
        """Stop it cleanly (SIGTERM); return its exit code."""
        self._signal(signal.SIGTERM)
        return self._ended()

    def pause(self) -> None:
        """Suspend it (SIGSTOP) until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue it (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise HarnessError("the broker is not running")
        self._process.send_signal(number)

    def _ended(self) -> int:
        process, self._process = self._process, None
        assert process is not None
        assert process.stdout is not None
        code = process.wait(DEADLINE_S)
        process.stdout.close()
        return code
