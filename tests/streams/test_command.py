"""`kohort streams` on a running application."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from asyncio.subprocess import PIPE
from typing import Any

import pytest
from rich.console import Console

from kohort.cli.streams import as_dict, shown
from kohort.client.admin.values import MemberDescription
from kohort.streams import App
from kohort.streams.assignment.tasks import Task
from kohort.streams.inspecting import ApplicationStatus, _member
from kohort.streams.log.records import ControlState, Started
from kohort.types import TopicPartition
from tests.cli.running import KOHORT, ran_text
from tests.streams.counting import running
from tests.streams.feeding import TASKS, Case
from tests.streams.runtime.test_running import SETTINGS, runs
from tests.streams.stubs import Control, Stand

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
        code, _, error = await kohort("leave", *where, "--member", "one")
        assert code == 1
        assert "is the only one" in error
        code, _, error = await kohort("leave", *where, "--instance", "two")
        assert code == 1
        assert "has no member 'two'" in error
    code, out, _ = await kohort("status", *where)
    assert code == 4
    assert "no members" in out


def test_status_is_watched(servers: str) -> None:
    asyncio.run(_watched(Case(servers)))


async def _watched(case: Case) -> None:
    command = [*KOHORT, "streams", "status", case.name, "-b", case.address, "--watch"]
    application = case.application()
    async with running(application, case.address, SETTINGS, client_id="one") as one:
        await one.until(lambda: runs(one, TASKS))
        lines, tables = [
            await asyncio.create_subprocess_exec(*command, *more, stdout=PIPE)
            for more in (["--json"], [])
        ]
        try:
            assert lines.stdout is not None
            assert tables.stdout is not None
            assert clients(await lines.stdout.readline()) == {"one"}
            assert b"#MEMBERS 1" in await tables.stdout.readline()
            async with running(application, case.address, SETTINGS, client_id="two"):
                async with asyncio.timeout(90):
                    while clients(await lines.stdout.readline()) != {"one", "two"}:
                        pass
                    while b"#MEMBERS 2" not in await tables.stdout.readline():
                        pass
            for process in (lines, tables):
                process.send_signal(signal.SIGINT)
                async with asyncio.timeout(90):
                    await process.communicate()
                assert process.returncode == 0
        finally:
            for process in (lines, tables):
                if process.returncode is None:
                    process.kill()
                    await process.wait()


def clients(line: bytes) -> set[str]:
    """Return the client ids of the members in a line."""
    return {each["client_id"] for each in json.loads(line)["members"]}


def test_what_members_process_is_shown_while_their_group_rebalances() -> None:
    """Kafka says no assignment then; the control topic has what each member said last."""
    task = Task(0, 3)
    said = Started(task=task, generation=1, member="one-id", at=0, unavailable_ms=None, restored=0)
    state = ControlState().with_record(said)
    members = tuple(
        _member(
            MemberDescription(f"{name}-id", None, name, "/127.0.0.1", frozenset(), frozenset()),
            state,
        )
        for name in ("one", "two")
    )
    found = ApplicationStatus(
        name="a", state="PreparingRebalance", members=members, tasks=state.tasks
    )
    shows: Any = as_dict(found)["members"]
    assert [each["processing"] for each in shows] == [["0_3"], []]
    to = Console(width=500)
    with to.capture() as captured:
        to.print(shown(found))
    assert re.search(r"one-id +one +tasks 0_3 ", captured.get())
    assert re.search(r"two-id +two +- ", captured.get())


def test_since_when_nobody_processed_a_task_whose_owner_crashed() -> None:
    """An owner that crashes says nothing, so there is no number."""
    member = MemberDescription("one-id", None, "one", "/127.0.0.1", frozenset(), frozenset())
    state = ControlState()
    for number, (owner, after) in enumerate([("one-id", "old-id"), ("old-id", ""), ("one-id", "")]):
        state = state.with_record(
            Started(
                task=Task(0, number),
                generation=1,
                member=owner,
                at=1_000,
                unavailable_ms=None,
                restored=0,
                after=after,
            )
        )
    found = ApplicationStatus(
        name="a", state="Stable", members=(_member(member, state),), tasks=state.tasks
    )
    rows: Any = as_dict(found)["tasks"]
    assert [each["after"] for each in rows] == ["old-id", None, None]
    to = Console(width=500)
    with to.capture() as captured:
        to.print(shown(found))
    assert re.search(r"0_0 .* from the end of old-id to \d\d:\d\d:01 ", captured.get())
    assert re.search(r"0_1 .* since the end of old-id ", captured.get())
    assert re.search(r"0_2 +started +one-id +- ", captured.get())


@pytest.mark.parametrize(("before", "after"), [("dead", "dead"), ("own", "")])
def test_who_takes_a_task_over_names_an_owner_that_did_not_release_it(
    before: str, after: str
) -> None:
    asyncio.run(_taken_over(before, after))


async def _taken_over(before: str, after: str) -> None:
    task, place = Task(0, 0), TopicPartition("in", 0)
    app = App("a")
    app.topic("in", key=str, value=str).count(name="n")
    said = Started(task=task, generation=1, member=before, at=0, unavailable_ms=None, restored=0)
    control = Control(ControlState().with_record(said))
    async with Stand(app, [place], control=control) as stand:
        consumer: Any = stand.consumer
        consumer.member_id = "own"
        await stand.owning.reports.started(stand.run(task), granted_at=0, restored=0)
    (found,) = control.said
    assert isinstance(found, Started)
    assert (found.member, found.after) == ("own", after)


def test_an_application_that_is_not_there(servers: str) -> None:
    code, _, error = asyncio.run(kohort("status", "nowhere", "-b", servers))
    assert code == 1
    assert "there is no stream application 'nowhere': no topic nowhere-control" in error
    assert "or the client's user may not DESCRIBE it" in error
