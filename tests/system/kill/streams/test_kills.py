"""Owners and learners in processes of their own are killed, and no record is left out."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.streams.counting import running
from tests.streams.feeding import TASKS, Case
from tests.streams.runtime.test_running import SETTINGS

pytestmark = pytest.mark.timeout(400)
_WAIT_S = 120.0
# Far more changelog records than a learner may be behind.
_MANY = 4_000


class Instance:
    """An instance in a process, and what it has printed."""

    def __init__(self, process: Process, errors: Path) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []
        self.errors = errors

    @classmethod
    async def start(cls, case: Case, folder: Path, *options: str) -> Instance:
        errors = folder.with_suffix(".log")
        command = [sys.executable, "-m", "tests.streams.process", case.address, case.name]
        command += [case.input, case.output, str(folder), *options]
        with errors.open("ab") as file:
            process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=file)
        return cls(process, errors)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Read events until something holds."""
        assert self.process.stdout is not None
        async with asyncio.timeout(_WAIT_S):
            while not condition():
                line = await self.process.stdout.readline()
                assert line, f"it ended: {self.errors.read_text()[-3_000:]}"
                self.events.append(json.loads(line))

    def started(self) -> set[str]:
        """Return the tasks that it has started at any time."""
        return {each["task"] for each in self.events if each["kind"] == "TaskStarted"}

    def learns(self) -> bool:
        """Whether the last plan has it learn."""
        plans = [each for each in self.events if each["kind"] == "TasksChanged"]
        return bool(plans) and plans[-1]["learning"] != []

    async def kill(self) -> None:
        """End it with SIGKILL."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def stop(self) -> None:
        """End it with SIGTERM, and expect that it leaves in order."""
        self.process.terminate()
        async with asyncio.timeout(_WAIT_S):
            await self.process.communicate()
        assert self.process.returncode == 0, self.errors.read_text()[-3_000:]


def test_the_owner_is_killed(servers: str, tmp_path: Path) -> None:
    asyncio.run(_kill_owner(Case(servers), tmp_path))


async def _kill_owner(case: Case, folder: Path) -> None:
    owner = await Instance.start(case, folder / "owner")
    try:
        async with case.fed():
            await owner.until(lambda: len(owner.started()) == TASKS)
            await case.until_sent(_MANY)
            heir = await Instance.start(case, folder / "heir", "slow")
            try:
                await heir.until(heir.learns)
                await owner.kill()
                await heir.until(lambda: len(heir.started()) == TASKS)
                await case.counts()
                again = await Instance.start(case, folder / "owner")
                try:
                    await again.until(lambda: again.started() != set())
                    await again.stop()
                finally:
                    await again.kill()
                await heir.stop()
            finally:
                await heir.kill()
    finally:
        await owner.kill()
    async with running(case.application(), case.address, SETTINGS):
        await case.check_at_least_once()


def test_the_learner_is_killed(servers: str, tmp_path: Path) -> None:
    asyncio.run(_kill_learner(Case(servers), tmp_path))


async def _kill_learner(case: Case, folder: Path) -> None:
    owner = await Instance.start(case, folder / "owner")
    try:
        async with case.fed():
            await owner.until(lambda: len(owner.started()) == TASKS)
            await case.until_sent(_MANY)
            learner = await Instance.start(case, folder / "learner", "slow")
            try:
                await learner.until(learner.learns)
            finally:
                await learner.kill()
            await case.counts()
            other = await Instance.start(case, folder / "other")
            try:
                await other.until(lambda: len(other.started()) == TASKS // 2)
                await case.counts()
                await other.stop()
            finally:
                await other.kill()
            await owner.stop()
    finally:
        await owner.kill()
    async with running(case.application(), case.address, SETTINGS):
        # owners were never killed: nothing was done twice either
        await case.check_exact()
