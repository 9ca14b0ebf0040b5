"""Programs in processes of their own, forked from one that has already imported what they need.

Starting Python and importing kohort takes longer than most commands and programs that tests run. A
server imports it once; each program is a fork of it, with its own session,
standard streams, environment and exit.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

ROOT = Path(__file__).parents[1]
MAX_REQUEST = 1 << 17  # bytes; the environment is most of it
LENGTH = 8  # bytes of a number in what the server answers


class Server(NamedTuple):
    """What programs are forked from.

    Attributes:
        modules: What it imports.
        options: Python's own options.
    """

    modules: tuple[str, ...]
    options: tuple[str, ...] = ()


class Program(NamedTuple):
    """What to run: `python -m module arguments`, with this environment."""

    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str]


class Forked:
    """A program that runs.

    Attributes:
        pid: Its process, which leads a session of its own.
    """

    def __init__(self, status: IO[bytes]) -> None:
        self._status = status
        told = status.read(LENGTH)
        # the server has ended: process 0 would be the group of the test itself
        assert len(told) == LENGTH, "the server of programs ended before it started one"
        self.pid = int.from_bytes(told, "big")

    def wait(self, timeout_s: float) -> int:
        """Its exit code, as `subprocess` gives it; TimeoutExpired if it is not over by then."""
        ready, _, _ = select.select([self._status], [], [], timeout_s)
        if not ready:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout_s)
        with self._status:
            return int.from_bytes(self._status.read(LENGTH), "big", signed=True)

    def end_all(self) -> None:
        """Kill it with everything it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def start(program: Program, server: Server, streams: tuple[int, int, int]) -> Forked:
    """Run a program whose standard streams are these."""
    status, answered = os.pipe()
    request = json.dumps(program).encode()
    assert len(request) < MAX_REQUEST
    try:
        socket.send_fds(_channel(server), [request], [*streams, answered])
    finally:
        os.close(answered)
    return Forked(os.fdopen(status, "rb", buffering=0))


def run(
    program: Program, server: Server, given: bytes | None, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end; `given` is its standard input."""
    ours, theirs = os.pipe()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            forked = start(program, server, (ours, output.fileno(), errors.fileno()))
        finally:
            os.close(ours)
        writing = threading.Thread(target=_write, args=(theirs, given or b""))
        writing.start()
        try:
            code = forked.wait(timeout_s)
        finally:
            forked.end_all()
            writing.join()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(program.arguments, code, output.read(), errors.read())


def _write(stream: int, given: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(stream, "wb") as file:
        file.write(given)


@functools.cache
def _channel(server: Server) -> socket.socket:
    """Start a server; returns where it is asked for programs, which it is until this is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, *server.options, "-m", "tests.forked", str(theirs.fileno())]
    with theirs:
        process = subprocess.Popen(
            [*command, *server.modules],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    atexit.register(_end, process, ours)
    return ours


def _end(process: subprocess.Popen[bytes], channel: socket.socket) -> None:
    channel.close()
    process.wait()


def _serve(channel: socket.socket) -> Program | None:
    """Fork for each request; returns in each fork what it must run, and None at the end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # which reaps the keepers
    while True:
        data, fds, _, _ = socket.recv_fds(channel, MAX_REQUEST, 4)
        if not data:
            return None
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            channel.close()
            return _keep(Program(*json.loads(data)), fds)
        for fd in fds:
            os.close(fd)


def _keep(program: Program, fds: list[int]) -> Program:
    """Fork once more; returns in the program's process, and waits for its end in this one."""
    *streams, status = fds
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _become(program, streams)
        return program
    for fd in streams:
        os.close(fd)
    with contextlib.suppress(BrokenPipeError):
        os.write(status, pid.to_bytes(LENGTH, "big"))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(status, code.to_bytes(LENGTH, "big", signed=True))
    os._exit(0)


def _become(program: Program, streams: list[int]) -> None:
    os.setsid()
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(program.environment)
    sys.argv = [program.module, *program.arguments]


def _main() -> None:
    """Import, serve, and in a fork run the program, whose end is this interpreter's end."""
    number, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # a collection in a fork would copy all of it
    with socket.socket(fileno=int(number)) as channel:
        program = _serve(channel)
    if program is not None:
        runpy.run_module(program.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
