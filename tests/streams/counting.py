"""A stream application that counts keys, for tests of the runtime; state is in memory or files."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from kohort.streams.assignment.tasks import SubTopology, Task, Topology
from kohort.streams.events import StreamsEvent
from kohort.streams.runtime.buffers import InputRecord
from kohort.streams.runtime.interface import Application, Output, Pair, StateDirectory
from kohort.streams.runtime.running import StreamsInstance
from kohort.streams.settings import StreamSettings
from kohort.types import TopicPartition

WAIT_S = 90.0

T = TypeVar("T", bound=StreamsEvent)
POISON = b"poison"
# So many events of an instance are told when one was waited for in vain.
_LAST = 12


class MemoryStore:
    """A store that is a dict, and a file once it is flushed."""

    def __init__(self, path: Path | None = None) -> None:
        self.pairs: dict[bytes, bytes] = {}
        self._changed: dict[bytes, bytes | None] = {}
        self._path = path
        if path is not None and path.exists():
            found: dict[str, str] = json.loads(path.read_text())
            self.pairs = {key.encode(): value.encode() for key, value in found.items()}

    def get(self, key: bytes) -> bytes | None:
        return self.pairs.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self.pairs[key] = self._changed[key] = value

    def restore(self, pairs: Iterable[Pair], /) -> None:
        for key, value in pairs:
            if value is None:
                self.pairs.pop(key, None)
            else:
                self.pairs[key] = value

    def changes(self) -> Sequence[Pair]:
        found = list(self._changed.items())
        self._changed.clear()
        return found

    def flush(self) -> None:
        if self._path is not None:
            text = {key.decode(): value.decode() for key, value in self.pairs.items()}
            new = self._path.with_suffix(".new")
            new.write_text(json.dumps(text))
            new.rename(self._path)


class Directory:
    """A folder with a store's file and a checkpoint."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._path = folder / "checkpoint"

    def read_checkpoint(self) -> Mapping[TopicPartition, int]:
        if not self._path.exists():
            return {}
        found: list[tuple[str, int, int]] = json.loads(self._path.read_text())
        return {TopicPartition(topic, number): offset for topic, number, offset in found}

    def write_checkpoint(self, offsets: Mapping[TopicPartition, int], /) -> None:
        new = self._path.with_suffix(".new")  # a kill must not leave half of it
        new.write_text(json.dumps([[*each, offset] for each, offset in offsets.items()]))
        new.rename(self._path)


class CountTask:
    """Counts the keys of one partition and writes each new count."""

    def __init__(
        self, task: Task, output: str, changelog: str, directory: StateDirectory | None
    ) -> None:
        path = directory.folder / "counts" if isinstance(directory, Directory) else None
        self.task = task
        self.store = MemoryStore(path)
        self.outputs: list[Output] = []
        self.is_closed = False
        self._output = output
        self._changelog = changelog
        self._waiting: deque[InputRecord] = deque()
        self._positions: dict[TopicPartition, int] = {}

    @property
    def stores(self) -> Mapping[str, MemoryStore]:
        return {"counts": self.store}

    @property
    def changelogs(self) -> Mapping[str, str]:
        return {"counts": self._changelog}

    def add(self, _partition: TopicPartition, records: Sequence[InputRecord], /) -> None:
        self._waiting.extend(records)

    def is_paused(self, _partition: TopicPartition, /) -> bool:
        return len(self._waiting) > 1_000

    def set_at_end(self, _partition: TopicPartition, _is_at_end: bool, /) -> None:
        """Take records as they come: there is one partition."""

    def process_some(self, budget: int, /) -> int:
        assert not self.is_closed
        done = 0
        while self._waiting and done < budget:
            record = self._waiting.popleft()
            if record.value == POISON:
                raise ValueError("poison")
            assert record.key is not None
            count = int(self.store.get(record.key) or 0) + 1
            self.store.put(record.key, str(count).encode())
            self.outputs.append(
                Output(self._output, record.key, str(count).encode(), record.timestamp)
            )
            where = TopicPartition(record.topic, record.partition)
            self._positions[where] = record.offset + 1
            done += 1
        return done

    def positions(self) -> Mapping[TopicPartition, int]:
        return self._positions

    def close(self) -> None:
        self.is_closed = True


def counting(name: str, topic: str, output: str, folder: Path | None = None) -> Application:
    """Return an application that counts the keys of a topic; with a folder its state is there."""
    changelog = f"{name}-counts-changelog"

    def make_task(task: Task, directory: StateDirectory | None) -> CountTask:
        return CountTask(task, output, changelog, directory)

    def open_directory(task: Task, _origin: str) -> Directory:
        assert folder is not None
        return Directory(folder / str(task))

    def stored() -> list[Task]:
        assert folder is not None
        folder.mkdir(exist_ok=True)
        found = (each.name.split("_") for each in folder.iterdir() if each.is_dir())
        return [Task(int(part), int(number)) for part, number in found]

    return Application(
        name=name,
        topology=Topology([SubTopology((topic,))]),
        make_task=make_task,
        changelogs={0: (changelog,)},
        open_directory=None if folder is None else open_directory,
        stored=tuple if folder is None else stored,
    )


class Running:
    """An instance that runs in the background of a test."""

    def __init__(
        self, application: Application, address: str, settings: StreamSettings, **clients: object
    ) -> None:
        self.events: list[StreamsEvent] = []
        self.changed = asyncio.Event()
        given = {
            "bootstrap_servers": address,
            "session_timeout_ms": 30_000,
            "heartbeat_interval_ms": 1_000,
            **clients,
        }
        self.instance = StreamsInstance(application, settings, given, self._note)
        self.job = asyncio.create_task(self.instance.run())

    def _note(self, event: StreamsEvent) -> None:
        self.events.append(event)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds that an event may bring about."""
        async with waiting(WAIT_S, self.seen):
            while not condition():
                self.changed.clear()
                changing = asyncio.create_task(self.changed.wait())
                done, _ = await asyncio.wait(
                    {changing, self.job}, return_when=asyncio.FIRST_COMPLETED, timeout=0.2
                )
                changing.cancel()
                if self.job in done:
                    self.job.result()

    def of(self, kind: type[T]) -> list[T]:
        """Return the events of a kind."""
        return [each for each in self.events if isinstance(each, kind)]

    def seen(self) -> str:
        """Say what the instance does, and what happened to it last."""
        inner = self.instance._owning
        session = inner.assignor.session if inner is not None else None
        tasks = {str(task): role.name for task, role in self.instance.tasks.items()}
        state = session and (session.state.name, session.generation, dict(session.lags))
        last = "".join(f"\n    {each}" for each in self.events[-_LAST:])
        return f"member {self.instance.member_id!r}, {state}, {tasks}; last events:{last}"

    async def stop(self) -> None:
        """Have it leave, and wait until it has."""
        self.instance.stop()
        async with asyncio.timeout(WAIT_S):
            await self.job


@asynccontextmanager
async def waiting(seconds: float, seen: Callable[[], str]) -> AsyncIterator[None]:
    """Give what is inside so much time; after that the error says what was seen last."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if limit.expired():
            raise AssertionError(f"waited {seconds:.0f} s in vain; {seen()}") from None
        raise


@asynccontextmanager
async def running(
    application: Application, address: str, settings: StreamSettings, **clients: object
) -> AsyncIterator[Running]:
    """Run an instance; it is stopped at the end."""
    one = Running(application, address, settings, **clients)
    try:
        yield one
    finally:
        if not one.job.done():
            await one.stop()
