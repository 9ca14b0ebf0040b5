"""`kohort streams` on a running application."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.cli.running import ran_text
from tests.streams.counting import running
from tests.streams.feeding import TASKS, Case
from tests.streams.test_running import SETTINGS, runs

pytestmark = pytest.mark.timeout(240)


async def kohort(*arguments: str) -> tuple[int, str, str]:
    """Run a command; return its exit code and what it wrote."""
    done = await asyncio.to_thread(ran_text, "streams", *arguments)
    return done.returncode, done.stdout, done.stderr


def test_status_and_leave(servers: str) -> None:
    asyncio.run(_status_and_leave(Case(servers)))


async def _status_and_leave(case: Case) -> None:
    where = (case.name, "-b", case.address)
    application = case.application()
    async with (
        running(application, case.address, SETTINGS, client_id="one") as one,
        running(application, case.address, SETTINGS, client_id="two") as two,
    ):
        await one.until(lambda: runs(one, TASKS // 2) and runs(two, TASKS // 2))
        _, out, error = await kohort("status", *where, "--json")
        found = json.loads(out or "{}")
        assert {each["client_id"] for each in found["members"]} == {"one", "two"}, error
        assert sum(len(each["active"]) for each in found["members"]) == TASKS
        assert {each["what"] for each in found["tasks"]} == {"started"}
        code, out, error = await kohort("leave", *where, "--member", "two")
        assert code == 0, error
        assert "has left" in out
        async with asyncio.timeout(90):
            await two.job
        await one.until(lambda: runs(one, TASKS))
        code, out, error = await kohort("status", *where)
        assert code in (0, 3), error
        assert "#MEMBERS 1" in out
        code, _, error = await kohort("leave", *where, "--instance", "two")
        assert code == 1
        assert "has no member 'two'" in error
    code, out, _ = await kohort("status", *where)
    assert code == 4
    assert "no members" in out


def test_an_application_that_is_not_there(servers: str) -> None:
    code, _, error = asyncio.run(kohort("status", "nowhere", "-b", servers))
    assert code == 1
    assert "there is no stream application 'nowhere': no topic nowhere-control" in error
