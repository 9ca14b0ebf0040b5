"""A simulated stream application: a group whose members are instances, and their logs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NoReturn, cast

from immutables import Map

from kohort.group.assignors import Assignor
from kohort.group.assignors.interface import Assignment
from kohort.group.subscription import Subscription
from kohort.simulation.groups.base import BaseClient, BaseNode
from kohort.simulation.groups.world import World
from kohort.simulation.rules import RULES, Checkers
from kohort.simulation.streams.base import BaseProcess, BaseStreamsWorld, Disk
from kohort.simulation.streams.books import Books
from kohort.simulation.streams.brokers import Brokers
from kohort.simulation.streams.instance import SimulatedAssignor, SimulatedInstance, settings_of
from kohort.simulation.streams.process import StreamsApplication, StreamsProcess
from kohort.simulation.streams.scenario import CHANGELOG, INPUT, STATELESS, StreamsScenario
from kohort.simulation.streams.work import SimulatedDirectory
from kohort.simulation.trace import Trace
from kohort.streams.assignment.plan import ASSIGNOR
from kohort.streams.assignment.tasks import SubTopology, Task, Topology
from kohort.streams.errors import StateInUseError
from kohort.streams.events import StreamsEvent, TaskFailed, TaskReleased, TaskStarted
from kohort.streams.runtime.interface import Pair, StateDirectory
from kohort.types import TopicPartition
from kohort.wire.messages.group_records import GroupRecord

# Rules of groups that do not apply: learning takes rebalances, and a loop takes steps.
_NOT_HERE = frozenset({"L4", "L8"})
CHECKERS = Checkers(each for each in RULES if each.name not in _NOT_HERE)

logger = logging.getLogger("kohort.streams")


class StreamsWorld(World, BaseStreamsWorld):
    """The complete state of a run.

    Attributes:
        plan: The scenario.
        topology: The topology of the application.
        brokers: Changelogs, outputs and the control topic.
        books: The records for the rules.
    """

    def __init__(self, plan: StreamsScenario, *, trace: Trace | None = None) -> None:
        super().__init__(plan.group, checkers=CHECKERS, trace=trace)
        self.plan = plan
        self.application = StreamsApplication
        self.process = StreamsProcess
        parts = [SubTopology((INPUT,))]
        if any(each.name == STATELESS for each in plan.group.topics):
            parts.append(SubTopology((STATELESS,), is_stateful=False))
        self.topology = Topology(parts)
        self.brokers = Brokers(self.engine)
        self.books = Books(self)
        self._broken: Exception | None = None
        self._disks: dict[tuple[str, Task], Disk] = {}
        self._running: dict[BaseProcess, None] = {}

    # ------------------------------------------------------------------------------- for processes

    def assignors_for(self, client: BaseClient) -> Mapping[str, Assignor]:
        """Return the assignor of a process, by its name."""
        dormant = self.stored(client.name) if self.plan.has_disks else ()
        assignor = SimulatedAssignor(
            self.topology,
            self.plan.learners(),
            Map(),
            Map(dict.fromkeys(dormant)),
            1,
            client.now,
        )
        return {ASSIGNOR: assignor}

    def instance(self, process: BaseProcess) -> SimulatedInstance:
        """Return the instance that a process runs."""
        self._running[process] = None
        return SimulatedInstance(process, self.topology, settings_of(process))

    def processes(self) -> list[StreamsProcess]:
        """Return the processes that run."""
        return cast("list[StreamsProcess]", self.living())

    def replay_rate(self, process: BaseProcess) -> int | None:
        """Return how many records a process replays per second; None: any number."""
        if self.engine.now < process.slow_until:
            return process.replays_per_s
        return self.plan.replays_per_s or None

    def stored(self, name: str) -> list[Task]:
        """Return the tasks that have state on the disk of an instance."""
        return sorted(task for (owner, task), _ in self._disks.items() if owner == name)

    def open_directory(self, process: BaseProcess, task: Task) -> StateDirectory | None:
        """Open the directory of a task.

        Raises:
            StateInUseError: The process has it open.
        """
        if task.sub_topology:
            return None
        disk = self._disks.setdefault((process.name, task), Disk())
        if disk.user is process:
            raise StateInUseError(f"{task} is open at {process.name}")
        disk.user = process
        return SimulatedDirectory(process, task, disk)

    def lags_of(self, process: BaseProcess) -> dict[Task, int]:
        """Return the true lags of a process with the tasks of which it has state."""
        owning = process.streams.owning
        found: dict[Task, int] = {}
        for task in [Task(0, n) for n in range(self.topics.counts()[INPUT])]:
            place = TopicPartition(CHANGELOG, task.partition)
            held = owning.held.get(task) if owning is not None else None
            disk = self._disks.get((process.name, task))
            at = disk.checkpoint if disk is not None else None
            if held is not None:
                at = held.changelog_ends.get(place)
            if held is not None and held.replay is not None:
                at = held.replay.positions.get(place)
            end = self.brokers.log(place).end
            if at is not None or not end:
                found[task] = end - (at or 0)
        return found

    # ------------------------------------------------------------------------------------- events

    def planned(
        self, subscriptions: Mapping[str, Subscription], given: Mapping[str, Assignment]
    ) -> None:
        """Check a leader's plan."""
        self.books.planned(subscriptions, {m: each.partitions for m, each in given.items()})
        self.books.warms_up(subscriptions, given)

    def processed(self, process: BaseProcess, task: Task, offset: int) -> None:
        """Check a processed record."""
        self.books.processed(process, task, offset)

    def checkpointed(self, process: BaseProcess, task: Task, disk: Disk, at: int) -> None:
        """Check a written checkpoint."""
        self.books.checkpointed(process, task, disk, at)

    def leaves(self, process: BaseProcess) -> None:
        """An instance ends because it was to leave."""
        self.books.leaves(process)

    def sends(self, process: BaseProcess, place: TopicPartition) -> None:
        """A process sends changes of state."""
        self.books.sends(process, place)

    def arrived(self, process: BaseProcess, place: TopicPartition, pairs: list[Pair]) -> None:
        """Records of a process have arrived."""
        if self.tracing:
            text = f"{place.topic}-{place.partition} {len(pairs)}"
            self.trace.line(self.engine.now, process.name, "stored", text)
        self.books.arrived(process, place, pairs)
        for each in self.processes():
            each.streams.grown(place)

    def happened(self, process: BaseProcess, event: StreamsEvent) -> None:
        """An instance reports an event."""
        self.note(event.kind)
        if self.tracing:
            task = getattr(event, "task", "")
            text = f"{task} {getattr(event, 'reason', '')}{getattr(event, 'error', '')}"
            self.trace.line(self.engine.now, process.name, event.kind, text.strip())
        if not process.alive:
            return
        if isinstance(event, TaskStarted):
            self.books.started(process, event)
        elif isinstance(event, TaskReleased):
            self.books.released(process, event.task)
        elif isinstance(event, TaskFailed):
            self.books.failed(process, event)

    def ended(self, process: BaseProcess, error: Exception) -> None:
        """An instance has ended with an error."""
        self.note(f"ended: {type(error).__name__}")
        if self.tracing:
            text = f"{type(error).__name__}: {error}"
            self.trace.line(self.engine.now, process.name, "ended", text)

    def recorded(self, node: BaseNode, records: tuple[GroupRecord, ...]) -> None:
        """Records are in the group's log."""
        super().recorded(node, records)
        self.books.committed(records)

    def client_died(self, client: BaseClient) -> None:
        """End the loop of a dead process."""
        super().client_died(client)
        for disk in self._disks.values():
            if disk.user is client:
                disk.user = None
        self.engine.after(0, None, self._end, client)

    def _end(self, process: BaseProcess) -> None:
        if process in self._running:
            del self._running[process]
            process.streams.loop.end()

    # --------------------------------------------------------------------------- how the run ends

    def fail(self, checker: str, complaint: str) -> None:
        """End the run, also from inside a process that catches exceptions."""
        try:
            super().fail(checker, complaint)
        except Exception as error:
            self._broken = self._broken or error
            raise

    def machine_failed(self, who: str, error: Exception) -> NoReturn:
        """End the run, like `fail`."""
        try:
            super().machine_failed(who, error)
        except Exception as failure:
            self._broken = self._broken or failure
            raise
        raise AssertionError("a machine that fails ends the run")

    def raise_broken(self) -> None:
        """Raise the error that ends the run, if there is one."""
        if self._broken is not None:
            raise self._broken

    def close(self) -> None:
        """End all processes, after the end of the run."""
        self._broken = None
        for process in list(self._running):
            process.alive = False
            self._end(process)
