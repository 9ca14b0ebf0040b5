"""The applications of the demo: child processes controlled by commands, one per line.

An actor reads commands from its standard input (`go`, `drain`) and answers with JSON lines on its
standard output. Its other output goes to its log file.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import psutil
from msgspec import Struct, field

from kohort.errors import KohortError

# Marks the lines of an actor's output that are meant for the demo.
PREFIX = "kohort-demo "


class ActorError(KohortError):
    """An application of the demo ended unexpectedly or failed to answer."""


class ActorState(Struct):
    """The messages of an actor so far.

    Attributes:
        said: Names of its events, in order.
        read: Number of records it has read, by its own count; displayed, but not part of the
            verdict.
        opened: Number of batches it has begun.
        open_batch: Number of records of the unfinished batch.
        fatal: The error that made it give up.
        snapshots: Number of table snapshots it has checked, as a reader.
        visible: Number of flights in the last snapshot.
        wrong: What was wrong with a snapshot.
    """

    said: list[str] = field(default_factory=list)
    read: int = 0
    opened: int = 0
    open_batch: int = 0
    fatal: str | None = None
    snapshots: int = 0
    visible: int = 0
    wrong: str | None = None


class Actor:
    """One application in its own process."""

    def __init__(self, name: str, module: str, arguments: Sequence[str], log: Path) -> None:
        """Start the process; it warms up and then waits for `go`.

        Args:
            name: Name of the application; its client id in the group.
            module: Python module to run.
            arguments: Command line of the module.
            log: File for the output of the process.
        """
        self.name = name
        self.state = ActorState()
        self.log_path = log
        self._was_killed = False
        self._changed = threading.Condition()
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self._reader = threading.Thread(target=self._read, name=f"demo-{name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Process id of the application's driver."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    @property
    def has_failed(self) -> bool:
        """Whether the process ended without being asked to or killed."""
        return self._gone() and not self._was_killed and "drained" not in self.state.said

    def tell(self, command: str) -> None:
        """Send a command.

        Raises:
            ActorError: The process has ended.
        """
        if self._process.stdin is None:
            raise ActorError(f"{self.name} has no standard input")
        try:
            self._process.stdin.write(command.encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ActorError(f"{self.name} is gone: {error}; see {self.log_path}") from error

    def wait_for(self, event: str, timeout_s: float) -> None:
        """Wait until the actor has reported `event`.

        Raises:
            ActorError: It ended first, or did not report it in time.
        """
        with self._changed:
            self._changed.wait_for(lambda: event in self.state.said or self._gone(), timeout_s)
            if event in self.state.said:
                return
        why = self.state.fatal or ("it ended" if self._gone() else f"nothing in {timeout_s:.0f} s")
        raise ActorError(f"{self.name} never said {event!r}: {why}; see {self.log_path}")

    def wait_for_open_batch(self, timeout_s: float) -> None:
        """Wait until the actor opens its next batch.

        Raises:
            ActorError: It opened none in time.
        """
        with self._changed:
            before = self.state.opened
            self._changed.wait_for(lambda: self.state.opened > before or self._gone(), timeout_s)
            if self.state.opened == before:
                raise ActorError(f"{self.name} opened no batch; see {self.log_path}")

    def kill(self) -> None:
        """Kill the process and all its child processes at the same instant.

        Spark's Python workers lead process groups of their own, so one signal to a group would
        leave some of them alive to leave the group cleanly.
        """
        self._was_killed = True
        family = [psutil.Process(self.pid)] if self.alive else []
        family += family[0].children(recursive=True) if family else []
        for process in family:
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait(timeout=30)
        self._reader.join(timeout=10)  # so that `state` contains its last messages

    def close(self) -> None:
        """End the process if it still runs, and release its resources."""
        self.kill()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue

    def _gone(self) -> bool:
        return not self.alive and not self._reader.is_alive()

    def _read(self) -> None:
        if self._process.stdout is None:
            return
        for raw in self._process.stdout:
            line = raw.decode(errors="replace")
            if line.startswith(PREFIX):
                self._note(json.loads(line[len(PREFIX) :]))
            else:
                self._log.write(raw)
        with self._changed:
            self._changed.notify_all()

    def _note(self, event: dict[str, object]) -> None:
        with self._changed:
            self.state.said.append(str(event["event"]))
            records = event.get("records", 0)
            if event["event"] == "batch-open" and isinstance(records, int):
                self.state.open_batch = records
                self.state.opened += 1
            elif event["event"] == "batch-done":
                self.state.read += self.state.open_batch
                self.state.open_batch = 0
            elif event["event"] == "fatal":
                self.state.fatal = str(event.get("why"))
            elif event["event"] == "snapshot" and isinstance(records, int):
                self.state.snapshots += 1
                self.state.visible = records
            elif event["event"] == "wrong":
                self.state.wrong = str(event.get("why"))
            self._changed.notify_all()


def say(event: str, **values: object) -> None:
    """Send a message to the demo; called inside an application."""
    sys.stdout.write(PREFIX + json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def commands() -> queue.Queue[str]:
    """Return a queue of the lines that the demo sends; called inside an application."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line.strip())
        lines.put("drain")

    threading.Thread(target=read, name="commands", daemon=True).start()
    return lines
