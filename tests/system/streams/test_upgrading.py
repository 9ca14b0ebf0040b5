"""The program of docs/streams-running.md hands its tasks over when it gets SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from subprocess import Popen

from kohort import EmbeddedBroker
from kohort.errors import KohortError
from kohort.streams.inspecting import look
from tests.broker.processes import eventually
from tests.docs.test_readme import python_blocks

PAGE = Path(__file__).parents[3] / "docs" / "streams-running.md"


def test_the_page_hands_tasks_over_upon_sigterm(tmp_path: Path) -> None:
    (block,) = python_blocks(PAGE.read_text())
    with EmbeddedBroker(tmp_path / "broker") as broker:
        broker.create_topic("numbers", 4)
        there = block.replace("localhost:9092", broker.bootstrap_servers)
        programs = [there.replace("/var/lib/sums", str(tmp_path / name)) for name in "ab"]
        first, second = (Popen([sys.executable, "-c", program]) for program in programs)
        try:
            eventually(lambda: shares(broker) == [2, 2], "each has two tasks")
            first.send_signal(signal.SIGTERM)
            assert first.wait(90) == 0
            eventually(lambda: shares(broker) == [4], "the other one has all")
            second.send_signal(signal.SIGINT)
            assert second.wait(90) == 0
        finally:
            for process in (first, second):
                process.kill()
                process.wait()


def shares(broker: EmbeddedBroker) -> list[int]:
    """Return how many tasks each instance of the page's program processes."""
    try:
        found = asyncio.run(look("sums", {"bootstrap_servers": broker.bootstrap_servers}))
    except KohortError:  # none has begun
        return []
    return sorted(len(each.processing) for each in found.members)
