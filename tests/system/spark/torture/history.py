"""Plays a plan against Apache Kafka and Spark, and counts every record at its end."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Self

import psutil
from deltalake import DeltaTable

from tests.spark.playing import options
from tests.system.spark.differential.world import World
from tests.system.spark.torture.counting import Batch, Record, Setback, problems
from tests.system.spark.torture.plan import FIRST_PARTITIONS, QUERIES, Plan, Step

ROOT = Path(__file__).resolve().parents[4]
# Runs that end so may leave an open batch behind.
ABRUPT = ("stop", "kill", "crash", "blackout")
# A machine that is busy with something else may be too slow for the group, which says so.
SLOW = "MembershipLostError"


class ApplicationProcess:
    """The application of one history, over all its starts.

    Args:
        home: Its files.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._process: subprocess.Popen[str] | None = None

    def ask(self, **command: object) -> str:
        """Have a command carried out, and start the application when it does not run.

        Raises:
            RuntimeError: It has ended; what it said is in its log.
        """
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _start(self) -> None:
        with (self._home / "log").open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.system.spark.torture.application", str(self._home)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            )
        self._answer()

    def _answer(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the application has ended: see {self._home / 'log'}")
        return str(json.loads(line))

    def kill(self, *, leaves_sources: bool) -> None:
        """Kill the driver, Python and JVM; and the sources' processes, unless they are left."""
        if self._process is None:
            return
        for process in processes_of(self._process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):  # a worker that has ended meanwhile
                is_driver = process.pid == self._process.pid or "java" in process.name()
                if is_driver or not leaves_sources:
                    process.kill()
        self._end()

    def close(self) -> None:
        """Let it end by itself."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._end()

    def _end(self) -> None:
        assert self._process is not None
        self._process.wait(120)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process = None


def processes_of(pid: int) -> list[psutil.Process]:
    """A process and all below it."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


class History:
    """One plan on its way.

    Args:
        plan: What happens.
        bootstrap: Where the broker listens.
        home: Its files; an empty folder.
        tell: Is told each step and its answer.
    """

    def __init__(self, plan: Plan, bootstrap: str, home: Path, tell: Callable[[str], None]) -> None:
        self._plan = plan
        self._home = home
        self._tell = tell
        self._world = World(bootstrap, f"seed-{plan.seed}", "kohort")
        self._application = ApplicationProcess(home)
        self._running: dict[str, str] = {}
        self._starts: Counter[str] = Counter()
        self._unfinished: set[str] = set()
        self._setbacks: list[Setback] = []
        self._wrong: list[str] = []

    def __enter__(self) -> Self:
        (self._home / "appended").mkdir(parents=True)
        self._world.create(partitions=FIRST_PARTITIONS)
        return self

    def __exit__(self, *_: object) -> None:
        self._application.kill(leaves_sources=False)
        self._world.close()

    def play(self) -> list[str]:
        """Take every step, read to the end, and return what is wrong."""
        for step in self._plan.steps:
            answer = self._take(step)
            self._tell(f"{step}{': ' if answer else ''}{answer[:200]}")
        self._finish()
        return [*self._wrong, *self._count()]

    def summary(self) -> str:
        """What was counted, in one line."""
        records = sum(self._world.ends().values())
        again = sum(len(batch.records) for batch in self._batches()) - records
        return (
            f"{records} records, each once in the Delta table; {again} again in the sink that "
            f"appends, after {len(self._unfinished)} runs that were cut off and "
            f"{len(self._setbacks)} times that the group was set back"
        )

    def _finish(self) -> None:
        """Let what runs read to the end, then every query alone, to repeat what is open."""
        for name in list(self._running):
            self._take(Step("drain", name))
        for name in QUERIES:
            self._start(Step("start", name, "availableNow"))
            self._tell(f"{name} reads to the end: {self._end('end', name)[:200]}")
        self._application.close()

    # -------------------------------------------------------------------------------------- steps

    def _take(self, step: Step) -> str:
        if step.action in ("stop", "drain", "kill"):
            return self._end(step.action, step.query)
        takes: dict[str, Callable[[Step], str | None]] = {
            "produce": self._produce,
            "add": lambda _: self._world.add_partition(count=len(self._world.ends()) + 1),
            "start": self._start,
            "rows": self._read,
            "crash": self._crash,
            "blackout": self._crash,
            "back": self._set_back,
            "forget": self._forget,
        }
        return takes[step.action](step) or ""

    def _produce(self, step: Step) -> None:
        partitions = len(self._world.ends())
        share, rest = divmod(step.number, partitions)
        self._world.produce({number: share + (number < rest) for number in range(partitions)})

    def _start(self, step: Step) -> str:
        name = step.query
        self._starts[name] += 1
        run = f"{name}-{self._starts[name]}"
        self._running[name] = run
        given = self._options(step)
        return self._application.ask(
            action="start", query=name, run=run, trigger=step.trigger, options=given
        )

    def _options(self, step: Step) -> dict[str, str]:
        world, protocol = self._world, self._plan.protocol
        given = options(world.bootstrap, world.topic, protocol, kafka__client__id=step.query)
        given["kafka.group.id"] = world.group
        if protocol != "consumer":  # the broker's to say
            given["kafka.session.timeout.ms"] = "10000"
        if step.number:
            given["maxOffsetsPerTrigger"] = str(step.number)
        return given

    def _read(self, step: Step) -> str:
        return self._application.ask(action="rows", query=step.query, number=step.number)

    def _end(self, action: str, name: str) -> str:
        answer = self._application.ask(action=action, query=name)
        run = self._running.pop(name)
        if action in ABRUPT or answer != "ended":
            self._unfinished.add(run)
        if action != "kill" and answer != "ended" and SLOW not in answer:
            self._wrong.append(f"{run} failed at {action}: {answer}")
        return "" if action == "kill" else answer

    def _crash(self, step: Step) -> None:
        self._application.kill(leaves_sources=step.action == "crash")
        self._unfinished |= set(self._running.values())
        self._running.clear()

    def _set_back(self, step: Step) -> str:
        """What `kafka-consumer-groups --reset-offsets` does; the group must be empty."""
        offsets = self._world.committed()
        back = {p: at * step.number // 100 for p, at in offsets.items()}
        if back:
            self._world.until_the_group_is_empty()
            self._world.set_group(back)
            self._setbacks.append(Setback(back))
        return str(back)

    def _forget(self, _step: Step) -> str:
        if not self._world.committed():
            return "no group"
        self._world.until_the_group_is_empty()
        self._world.delete_group()
        self._setbacks.append(Setback({}))
        return ""

    # ------------------------------------------------------------------------------------ counting

    def _count(self) -> list[str]:
        ends = self._world.ends()
        found = list(
            problems(ends, self._table(), self._batches(), self._unfinished, self._setbacks)
        )
        if self._world.committed() != ends:
            found.append(f"the group has committed {self._world.committed()} of {ends}")
        return found

    def _table(self) -> Counter[Record]:
        rows = DeltaTable(self._home / "table").to_pyarrow_table(columns=["partition", "offset"])
        return Counter((row["partition"], row["offset"]) for row in rows.to_pylist())

    def _batches(self) -> list[Batch]:
        lines = [
            json.loads(line)
            for file in sorted((self._home / "appended").iterdir())
            for line in file.read_text().splitlines()
        ]
        return [
            Batch(line["run"], line["number"], tuple((p, offset) for p, offset in line["records"]))
            for line in lines
        ]
