"""The programs and commands of docs/tutorial.md, run as a reader runs them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.broker.processes import eventually

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
TEXT = PAGE.read_text(encoding="utf-8")
DEADLINE_S = 200

_VARIES = {
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}": "<id>",
    r"\d\d:\d\d:\d\d": "<time>",
    r"(ATTEMPT|COMPLETED|CONTROLLER-EPOCH) \d+": r"\1 <number>",
    r"(north|south)( +)\S+( +)\d+( +flights-)": r"\1 <host> <process>\4",
    r"(flights-\d)( +)\d+( +)\d+ B( +)": r"\1 <lag> <size> ",
    r" +": " ",
    r" $": "",
}
"""Parts of outputs that are not the same on two machines, and what they are compared as."""


def programs() -> dict[str, str]:
    """The Python blocks, by the file name in their first line."""
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    return {block.split()[1]: block for block in blocks}


def commands() -> list[tuple[str, str]]:
    """Each command of the `console` blocks, and what it prints."""
    blocks = re.findall(r"^```console\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(blocks), re.MULTILINE)


def printed_by(command: str) -> list[str]:
    """What the page shows below the places where it has this command, in order."""
    found = [output for each, output in commands() if each == command]
    assert found, f"the page does not have: {command}"
    return found


def after(words: str) -> str:
    """The `text` block that follows these words, wherever their line ends."""
    (_, below) = re.split(re.escape(words).replace(r"\ ", r"\s+"), TEXT)
    return below.split("```text\n")[1].split("```\n")[0]


def compared(output: str) -> str:
    """An output without what varies."""
    for pattern, instead in _VARIES.items():
        output = re.sub(pattern, instead, output, flags=re.MULTILINE)
    return output


class Terminals:
    """A folder with the programs of the page, and shells in it.

    Args:
        folder: Where the programs are written.
        bootstrap: The broker in the place of `localhost:9092`.
        quicker: Texts of the programs, and what stands there instead in a test that is to be short.
    """

    def __init__(self, folder: Path, bootstrap: str, quicker: dict[str, str] | None = None) -> None:
        self.folder = folder
        self._bootstrap = bootstrap
        for name, code in programs().items():
            for text, instead in {**(quicker or {}), "localhost:9092": bootstrap}.items():
                code = code.replace(text, instead)
            (folder / name).write_text(code)

    def prints(self, command: str, time: int = 0) -> None:
        """Run a command, again and again if it only looks, until it prints what the page says.

        Args:
            command: As the page has it.
            time: Which of its places on the page, from 0.
        """
        expected = compared(printed_by(command)[time])
        said = ""

        def is_right() -> bool:
            nonlocal said
            said = self.run(command)
            return compared(said) == expected

        if re.search("producer.py|create", command):
            is_right()
        else:
            with contextlib.suppress(AssertionError):
                eventually(is_right, command, DEADLINE_S)
        assert compared(said) == expected, said

    def run(self, command: str) -> str:
        """Return what a command prints."""
        command = command.replace("localhost:9092", self._bootstrap)
        done = subprocess.run(
            ["bash", "-c", _SHELL + command],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            cwd=self.folder,
        )
        return done.stdout + done.stderr

    @contextlib.contextmanager
    def plays(self, command: str) -> Iterator[Terminal]:
        """Start a program of the page, and wait until it shows what the page says."""
        with self.started(command) as terminal:
            terminal.shows(printed_by(command)[0])
            yield terminal

    @contextlib.contextmanager
    def started(self, command: str) -> Iterator[Terminal]:
        """Start a command in a terminal of its own, and end it with Ctrl-C if it still runs."""
        words = command.replace("localhost:9092", self._bootstrap).split()
        words[:1] = [sys.executable, "-u"] + ([] if words[0] == "python" else ["-m", "kohort"])
        log = self.folder / re.sub(r"\W+", "-", f"log of {command}")
        with log.open("w") as output:
            process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=output, text=True, cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip
        terminal = Terminal(process, log)
        try:
            yield terminal
            terminal.interrupt()
            assert process.wait(DEADLINE_S) in (0, -signal.SIGKILL)
        finally:
            terminal.kill()


class Terminal:
    """A program that runs, and what it has printed."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def shows(self, lines: str) -> None:
        """Wait until it has printed these lines, in any order."""
        wanted = set(compared(lines).splitlines())

        def has_them() -> bool:
            return self._process.poll() is not None or wanted <= self._lines()

        with contextlib.suppress(AssertionError):
            eventually(has_them, lines, DEADLINE_S)
        assert wanted - self._lines() == set(), self._log.read_text()

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def enter(self) -> None:
        """Press Enter, and wait until the program has ended."""
        self._process.communicate("\n", timeout=DEADLINE_S)
        assert self._process.returncode == 0, self._log.read_text()

    def kill(self) -> None:
        """End it, and what it has started, as a crash does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def _lines(self) -> set[str]:
        return set(compared(self._log.read_text()).splitlines())


_SHELL = (
    f'kohort() {{ "{sys.executable}" -m kohort "$@"; }}; python() {{ "{sys.executable}" "$@"; }}; '
)
