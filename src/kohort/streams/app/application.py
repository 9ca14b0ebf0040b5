"""Adapts a program to the runtime: tasks over open stores, their directories and topics."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from kohort.streams.app.steps import Sink
from kohort.streams.app.topology import Program
from kohort.streams.assignment.tasks import Task
from kohort.streams.runtime.buffers import InputRecord
from kohort.streams.runtime.directory import TaskDirectory, hold_state
from kohort.streams.runtime.interface import Application, Output, StateDirectory
from kohort.streams.runtime.task import StreamTask
from kohort.streams.stores.memory import MemoryStore
from kohort.streams.stores.store import Store
from kohort.types import TopicPartition

# A task that awaits functions yields to other tasks after this time.
_LONGEST_S = 0.1
_TASK = re.compile(r"(\d{1,9})_(\d{1,9})")


class ProgramDirectory:
    """A task's state on disk, with its stores open.

    Args:
        program: The program.
        task: The task.
        directory: The task's directory; closed if a store cannot be opened.

    Attributes:
        stores: The open stores, by name.

    Raises:
        StateError: A store cannot be opened.
    """

    def __init__(self, program: Program, task: Task, directory: TaskDirectory) -> None:
        self._directory = directory
        part = program.parts[task.sub_topology]
        self._place = {
            step.name: TopicPartition(program.changelog(step.name), task.partition)
            for step in part.stores
        }
        self._name = {place: name for name, place in self._place.items()}
        self.stores: dict[str, Store] = {}
        try:
            for name in self._place:
                self.stores[name] = directory.open_store(name)
        except BaseException:
            directory.close()
            raise

    def read_checkpoint(self) -> Mapping[TopicPartition, int]:
        """Return the offsets of stores with state; opening a store may have dropped its state."""
        offsets = self._directory.offsets()
        return {place: offsets[name] for name, place in self._place.items() if name in offsets}

    def write_checkpoint(self, offsets: Mapping[TopicPartition, int], /) -> None:
        """Write the changelog offset of each store; see `TaskDirectory.commit`."""
        named = {self._name[place]: offset for place, offset in offsets.items()}
        self._directory.commit(named)

    def close(self) -> None:
        """Close the stores and release the lock."""
        self._directory.close()


class ProgramTask:
    """A program's task, as the runtime uses it.

    Args:
        program: The program.
        task: The task.
        directory: Its state on disk; None: state is kept in memory.
    """

    def __init__(self, program: Program, task: Task, directory: ProgramDirectory | None) -> None:
        part = program.parts[task.sub_topology]
        self.stores: Mapping[str, Store] = (
            {step.name: MemoryStore(step.name) for step in part.stores}
            if directory is None
            else directory.stores
        )
        self.changelogs = {name: program.changelog(name) for name in self.stores}
        self._directory = directory
        self._task = StreamTask(program, task.sub_topology, task.partition, self.stores)

    @property
    def outputs(self) -> list[Output]:
        """The task's output since this list was last emptied."""
        return self._task.outputs

    def add(self, partition: TopicPartition, records: Sequence[InputRecord], /) -> None:
        """Add fetched records."""
        self._task.add(partition, records)

    def is_paused(self, partition: TopicPartition, /) -> bool:
        """Whether a partition has enough waiting records."""
        return partition in self._task.paused()

    def set_at_end(self, partition: TopicPartition, is_at_end: bool, /) -> None:
        """Record whether a partition was read to its end."""
        self._task.set_at_end(partition, is_at_end)

    def process_some(self, budget: int, /) -> int | Awaitable[int]:
        """Process records in timestamp order.

        Raises:
            RecordFailedError: See `StreamTask.process`.
            StateError: See `StreamTask.process`.
        """
        take, process = self._task.next, self._task.process
        for done in range(budget):
            record = take()
            if record is None:
                return done
            waiting = process(record)
            if waiting is not None:
                return self._go_on(waiting, done + 1, budget)
        return budget

    async def _go_on(self, waiting: Awaitable[None] | None, done: int, budget: int) -> int:
        until = time.monotonic() + _LONGEST_S
        while True:
            if waiting is not None:
                await waiting
            record = self._task.next() if done < budget and time.monotonic() < until else None
            if record is None:
                return done
            waiting = self._task.process(record)
            done += 1

    def positions(self) -> Mapping[TopicPartition, int]:
        """Return the next offset of each partition with processed records."""
        return self._task.positions()

    def close(self) -> None:
        """Close the stores and release the directory; unflushed changes are dropped."""
        if self._directory is not None:
            self._directory.close()
        else:
            for store in self.stores.values():
                store.close()


def application_of(program: Program, state_dir: Path | None) -> Application:
    """Return a program in the form that the runtime expects.

    Args:
        program: The program.
        state_dir: Directory for state; None: in memory, restored completely at each start.
    """
    repartitions = {
        source.topic: source.partitions or None
        for part in program.parts
        for source in part.sources
        if source.is_repartition
    }
    return Application(
        name=program.application,
        topology=program.topology,
        make_task=partial(_make_task, program),
        changelogs={
            part.number: tuple(program.changelog(step.name) for step in part.stores)
            for part in program.parts
            if part.stores
        },
        repartitions=repartitions,
        open_directory=None if state_dir is None else partial(_open, program, state_dir),
        stored=tuple if state_dir is None else partial(_stored, program, state_dir),
        hold_state=nullcontext
        if state_dir is None
        else partial(hold_state, state_dir, program.application),
        written=_written(program),
        dead_letters=program.dead_letter_topic,
        repartition_counts=partial(_repartition_counts, program, frozenset(repartitions)),
        digest=program.digest,
    )


def _make_task(program: Program, task: Task, directory: StateDirectory | None) -> ProgramTask:
    assert directory is None or isinstance(directory, ProgramDirectory)
    try:
        return ProgramTask(program, task, directory)
    except BaseException:
        if directory is not None:
            directory.close()
        raise


def _open(program: Program, state_dir: Path, task: Task, origin: str) -> ProgramDirectory | None:
    if not program.parts[task.sub_topology].stores:
        return None
    directory = TaskDirectory(state_dir, program.application, task, origin)
    return ProgramDirectory(program, task, directory)


def _stored(program: Program, state_dir: Path) -> Iterable[Task]:
    """Return the tasks that have a checkpoint, except those of an older program."""
    folder = state_dir / program.application
    found = [_TASK.fullmatch(each.parent.name) for each in folder.glob("*/checkpoint.json")]
    tasks = [Task(int(match[1]), int(match[2])) for match in found if match is not None]
    stateful = {part.number for part in program.parts if part.stores}
    return sorted(task for task in tasks if task.sub_topology in stateful)


def _written(program: Program) -> Mapping[int, frozenset[str]]:
    return {
        part.number: frozenset(step.topic for step in part.steps if isinstance(step, Sink))
        for part in program.parts
    }


def _repartition_counts(
    program: Program, topics: frozenset[str], counts: Mapping[str, int]
) -> Mapping[str, int]:
    found = program.internal_topics(counts)
    return {topic.name: topic.partitions for topic in found if topic.name in topics}
