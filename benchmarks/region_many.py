"""The controller of a large region on a real Kafka: simulated operators, a real control topic.

The operators' machines run in one process, the candidates in separate processes. No records are
read: the control plane is measured. Java, Maven and `make test` are needed once.

    python benchmarks/region_many.py [--operators 100] [--partitions 1000] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import psutil
from immutables import Map

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness  # noqa: E402  # found only after the line above
from benchmarks.region import SESSION_S, Watch, until  # noqa: E402  # as above
from kohort.client.admin.aio import AsyncAdminClient  # noqa: E402  # as above
from kohort.client.net.transport import now_ms  # noqa: E402  # as above
from kohort.region import CallableSink  # noqa: E402  # as above
from kohort.region.controlling import Controlling  # noqa: E402  # as above
from kohort.region.log.control import ControlLog  # noqa: E402  # as above
from kohort.region.machines.controller import (  # noqa: E402  # as above
    ControllerConfig,
    ControllerMachine,
)
from kohort.region.machines.events import (  # noqa: E402  # as above
    Appended,
    Assigned,
    CutMade,
    Discarded,
    Folded,
    MakeCut,
    OperatorInput,
    Read,
    StartFound,
    Stopped,
    Tick,
)
from kohort.region.machines.operator import (  # noqa: E402  # as above
    OperatorConfig,
    OperatorMachine,
)
from kohort.region.machines.records import (  # noqa: E402  # as above
    OperatorId,
    RegionPartition,
    RegionSettings,
)
from kohort.region.machines.state import RegionState  # noqa: E402  # as above
from tests.real_kafka.broker import RealKafka  # noqa: E402  # as above

REGION = "large"
SETTINGS = RegionSettings(group_id="large", period_ms=5_000)


class Simulated:
    """One operator without a consumer: each cut is ten records after the last one."""

    def __init__(self, number: int, control: ControlLog) -> None:
        self._loop = asyncio.get_running_loop()
        self._control = control
        self._timer: asyncio.TimerHandle | None = None
        self._reads: dict[RegionPartition, Read] = {}
        self._at: dict[RegionPartition, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._machine = OperatorMachine(
            OperatorConfig(
                id=OperatorId(f"operator-{number}", "1"),
                host="localhost",
                process="1",
                client_id=f"client-{number}",
                settings=SETTINGS,
            )
        )

    def folded(self, state: RegionState) -> None:
        """Update the machine after new records of the log."""
        self.tell(Folded(state))

    def tell(self, event: OperatorInput) -> None:
        """Pass an event to the machine, and carry out its effects."""
        effects = self._machine.decide(event, now_ms())
        self._machine.install(effects)
        if effects.failed is not None:
            raise effects.failed
        if self._timer is not None:
            self._timer.cancel()
        if effects.deadline is not None:
            self._timer = self._loop.call_at(effects.deadline / 1000, self.tell, Tick())
        if effects.append is not None:
            self._begin(self._append(effects.append.token, effects.append.records))
        for read in effects.reads:
            self._reads[read.partition] = read
            self._at[read.partition] = read.offset
        answers: list[OperatorInput] = [StartFound(each, 0) for each in effects.find_starts]
        if effects.discard is not None:
            answers.append(Discarded(effects.discard))
        if effects.stops:
            answers.append(Stopped(effects.stops))
        if effects.cut is not None:
            answers.append(self._cut(effects.cut))
        for each in answers:
            self._loop.call_soon(self.tell, each)

    def _cut(self, cut: MakeCut) -> CutMade:
        self._at = {each: at + 10 for each, at in self._at.items()}
        states = {each: f"{at}:200:0123456789abcdef01234567" for each, at in self._at.items()}
        reads = Map({each: self._reads[each].read for each in self._at})
        return CutMade(cut.checkpoint, cut.attempt, Map(self._at), reads, Map(states))

    async def _append(self, token: int, records: Any) -> None:  # noqa: ANN401  # of the region
        self.tell(Appended(token, await self._control.append(records)))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Candidate(Controlling):
    """A candidate that accepts operators without a group."""

    async def _describe(self, admin: AsyncAdminClient) -> None:
        """Return without asking the brokers."""


async def follow(control: ControlLog, *told: Any) -> asyncio.Task[None]:  # noqa: ANN401  # callables
    """Open the log, and keep reading it."""
    await control.open()
    following = asyncio.create_task(control.follow())
    await control.caught_up()
    for each in told:
        control.on_state(each)
        each(await control.caught_up())
    return following


async def operators(address: str, count: int, partitions: int) -> None:
    """Run a number of operators forever."""
    control = ControlLog(REGION, {"bootstrap_servers": address})
    members = [Simulated(number, control) for number in range(count)]
    following = await follow(control, *(each.folded for each in members))
    places = [RegionPartition("t", "an-id", number) for number in range(partitions)]
    for number, each in enumerate(members):
        each.tell(Assigned(frozenset(places[number::count])))
    await following


async def candidate(address: str, name: str) -> None:
    """Run a candidate forever."""
    client = {"bootstrap_servers": address, "session_timeout_ms": SESSION_S * 1_000}
    control = ControlLog(REGION, client)
    machine = ControllerMachine(ControllerConfig(incarnation=name, settings=SETTINGS))
    sink = CallableSink(lambda *_: "", lambda *_: None)
    one = Candidate(machine, control, sink, client, SETTINGS.group_id)
    following = await follow(control, one.folded)
    await asyncio.gather(one.run(), following)


class Process:
    """A process of this file."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "benchmarks.region_many", *map(str, arguments)]
        self._process = subprocess.Popen(command, cwd=ROOT)

    def processor_s(self) -> float:
        """Return the CPU time that it has used."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._process.kill()
        self._process.wait()


def measured(address: str, options: argparse.Namespace, result: harness.Result) -> None:
    """Measure one region, then the death of its controller."""
    watch = Watch(address, REGION)
    processes = [Process("candidate", address, "first")]
    try:
        until(lambda: _controller(watch) == "first", "a controller")
        processes.append(Process("operators", address, options.operators, options.partitions))
        until(lambda: _works(watch, options), "all partitions are in a checkpoint")
        before, known = processes[0].processor_s(), len(watch.drains)
        time.sleep(options.seconds)
        share = (processes[0].processor_s() - before) / options.seconds
        result.limit("share of a core", share, 0.2)
        result.note("checkpoints", len(watch.drains) - known)
        result.limit("checkpoint, longest, s", max(watch.drains[known:]) / 1000, 2.0)
        processes.append(Process("candidate", address, "second"))
        time.sleep(SESSION_S)
        names = ("first", "second")
        victim = names.index(_controller(watch))
        processes[2 * victim].kill()
        killed = time.monotonic()
        until(lambda: _controller(watch) == names[1 - victim], "another controller")
        result.limit("kill to new controller, s", time.monotonic() - killed, SESSION_S + 1.0)
    finally:
        for each in processes:
            each.kill()
        watch.close()


def _controller(watch: Watch) -> str:
    return "" if watch.state is None else watch.state.controller


def _works(watch: Watch, options: argparse.Namespace) -> bool:
    state = watch.state
    if state is None:
        return False
    known = [each for each in state.partitions.values() if each.position]
    return len(known) == int(options.partitions)


def main() -> int:
    """Run the benchmark; return 1 if a target was missed."""
    parser = harness.arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--operators", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    result = harness.Result("checkpoints", {})
    with (
        tempfile.TemporaryDirectory(prefix="kohort-benchmark-") as folder,
        RealKafka(Path(folder), jvm_options=("-Xmx1g",)) as kafka,
    ):
        measured(kafka.bootstrap_servers, options, result)
    title = f"{options.operators} operators, {options.partitions} partitions"
    return harness.report(title, result, options.json)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["operators", address, count, partitions]:
            asyncio.run(operators(address, int(count), int(partitions)))
        case ["candidate", address, name]:
            asyncio.run(candidate(address, name))
        case _:
            sys.exit(main())
