"""A task that crashes at any moment of a commit goes on without losing a record.

The topics are lists, everything else is real: task, directory, RocksDB. A crash is a close without
a flush, which leaves on disk what a kill leaves; tests/streams/runtime/test_directory.py kills
processes.
"""

from __future__ import annotations

import tempfile
from enum import IntEnum

from hypothesis import given, settings
from hypothesis import strategies as st

from kohort import ConsumerRecord
from kohort.streams import App
from kohort.streams.assignment.tasks import Task
from kohort.streams.runtime.directory import TaskDirectory
from kohort.streams.runtime.task import StreamTask
from kohort.streams.stores.store import Change
from kohort.types import TopicPartition

IN = TopicPartition("in", 0)
STORE = "seen"


class Moment(IntEnum):
    """What of a commit was done before the crash."""

    NOTHING = 0
    CHANGELOG = 1
    POSITIONS = 2
    FLUSHED = 3
    ALL = 4


def program() -> App:
    """Return a program whose state has the offsets that each key was seen at."""
    app = App("app")
    app.topic("in", key=str, value=int).aggregate(
        list, lambda seen, offset: [*seen, offset], value="json", name=STORE
    )
    return app


class World:
    """A topic, a changelog and a committed position, as brokers have them."""

    def __init__(self, state_dir: str, keys: list[str], kind: str) -> None:
        self.state_dir = state_dir
        self.kind = kind
        self.records = [
            ConsumerRecord(*IN, offset, 0, 0, key.encode(), offset.to_bytes(8, "big"), (), -1)
            for offset, key in enumerate(keys)
        ]
        self.changelog: list[Change] = []
        self.committed = 0
        self.program = program().build()

    def run(self, commits: list[int], crash: Moment) -> bool:
        """Run a task from its start to a crash in its last commit; return whether all is done."""
        with TaskDirectory(self.state_dir, "app", Task(0, 0)) as directory:
            store = directory.open_store(STORE, self.kind)
            store.restore(self.changelog[directory.offsets().get(STORE, 0) :])
            directory.commit({STORE: len(self.changelog)})
            task = StreamTask(self.program, 0, 0, {STORE: store})
            task.add(IN, self.records[self.committed :])
            for number, size in enumerate(commits):
                for _ in range(size):
                    if (record := task.next()) is not None:
                        task.process(record)
                is_last = number == len(commits) - 1
                self.commit(directory, task, crash if is_last else Moment.ALL)
            return task.buffered == 0

    def commit(self, directory: TaskDirectory, task: StreamTask, until: Moment) -> None:
        cut = task.cut()
        if until >= Moment.CHANGELOG:
            for changes in cut.changes.values():
                self.changelog += changes
        if until >= Moment.POSITIONS:
            self.committed = cut.positions.get(IN, self.committed)
        if until == Moment.FLUSHED:
            task.store(STORE).flush()
        if until == Moment.ALL:
            directory.commit({STORE: len(self.changelog)})

    def state(self) -> dict[str, list[int]]:
        """Return the state of a new task, and of one that has no directory: they are the same."""
        step = self.program.parts[0].stores[0]
        with TaskDirectory(self.state_dir, "app", Task(0, 0)) as directory:
            store = directory.open_store(STORE, self.kind)
            store.restore(self.changelog[directory.offsets().get(STORE, 0) :])
            found = dict(step.items(store))
            raw = dict(store.items())
        last = {key: value for key, value in dict(self.changelog).items() if value is not None}
        assert raw == last
        return found


@settings(max_examples=25, deadline=None)
@given(
    keys=st.lists(st.sampled_from("abc"), min_size=1, max_size=20),
    runs=st.lists(
        st.tuples(st.lists(st.integers(0, 5), min_size=1, max_size=3), st.sampled_from(Moment)),
        max_size=4,
    ),
    kind=st.sampled_from(["rocksdb", "rocksdb", "memory"]),
)
def test_every_record_is_in_the_state(
    keys: list[str], runs: list[tuple[list[int], Moment]], kind: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder, keys, kind)
        for commits, crash in runs:
            world.run(commits, crash)
        assert world.run([len(keys)], Moment.ALL)
        seen = world.state()
        for offset, key in enumerate(keys):
            assert offset in seen[key]
        # Only what was in the changelog before its positions were committed is there twice.
        if all(crash is not Moment.CHANGELOG for _, crash in runs):
            assert sum(map(len, seen.values())) == len(keys)
