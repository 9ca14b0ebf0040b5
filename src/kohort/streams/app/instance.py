"""One instance of a program, and queries of its stores."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, TypeAlias

from immutables import Map

from kohort.client.producer.partitioner import partition_for_key
from kohort.errors import ConfigError
from kohort.region.settings import ClientSettings
from kohort.streams.app.application import ProgramTask, application_of
from kohort.streams.app.serdes import Decoded
from kohort.streams.app.steps import Found, Storing
from kohort.streams.app.topology import Part, Program
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import KeyElsewhereError, NoSuchStoreError, NotRunningError
from kohort.streams.events import StreamsEvent
from kohort.streams.runtime.running import StreamsInstance
from kohort.streams.settings import StreamSettings

StoreKind: TypeAlias = Literal["rocksdb", "memory"]
"""Where an instance keeps state: on disk, or in memory, restored completely at each start."""


class ProgramInstance(StreamsInstance):
    """An instance of a program, to be run on one event loop.

    Args:
        program: The program.
        state_dir: Directory for state; each process needs its own.
        store: "rocksdb", or "memory".
        settings: The instance's settings.
        clients: Kafka's settings in snake_case.
        on_event: Called with each event, on the event loop.

    Raises:
        ConfigError: A setting is missing or unknown, or reserved for the runtime.
    """

    def __init__(
        self,
        program: Program,
        state_dir: str | Path | None,
        store: StoreKind = "rocksdb",
        settings: StreamSettings | None = None,
        clients: ClientSettings = Map(),
        on_event: Callable[[StreamsEvent], None] | None = None,
    ) -> None:
        application = application_of(program, _folder(program, state_dir, store))
        super().__init__(application, settings, clients, on_event)
        self._program = program
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        # queries of other threads that the loop has not answered
        self._queries: set[Future[Decoded]] = set()

    @property
    def url(self) -> str:
        """The HTTP address for queries to this instance; empty: none."""
        return self._url

    @property
    def stores(self) -> tuple[str, ...]:
        """Names of the program's stores."""
        return tuple(sorted(step.name for part in self._program.parts for step in part.stores))

    async def run(self) -> None:
        """Take part in the group until `stop` is called; see `StreamsInstance.run`.

        Raises:
            StreamsError: See `StreamsInstance.run`.
            KafkaError: See `StreamsInstance.run`.
        """
        self._loop = asyncio.get_running_loop()
        try:
            async with self._served():
                await super().run()
        finally:
            with self._lock:
                self._loop = None
                unanswered, self._queries = self._queries, set()
            for query in unanswered:
                query.set_exception(self._not_running())

    @asynccontextmanager
    async def _served(self) -> AsyncIterator[None]:
        if self._settings.query_listen is None:
            yield
            return
        from kohort.streams.serving import QueryServer

        async with QueryServer(self, self._settings) as server:
            self._url = server.url
            yield

    def stop_soon(self) -> None:
        """Call `stop` on the loop; may be called from any thread."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self.stop)
        else:
            self.stop()

    def query(self, store: str, key: object, *, stale: bool = False) -> Decoded:
        """Return the value of a key in a store, or None if it has none.

        Args:
            store: Name of the store.
            key: The key; a `WindowedKey` for a windowed store.
            stale: Whether a learner or standby of this instance may answer, with older state.

        Raises:
            NotRunningError: The instance is not running.
            NoSuchStoreError: The program has no store with this name.
            KeyElsewhereError: Another instance processes the key's task; the error names it.
        """
        if _is_running(self._loop):
            return self.find(store, key, stale=stale).value
        answer: Future[Decoded] = Future()

        def look() -> None:
            with self._lock:
                if answer not in self._queries:
                    return
                self._queries.discard(answer)
            try:
                answer.set_result(self.find(store, key, stale=stale).value)
            except Exception as error:  # noqa: BLE001  # raised in the thread of the query
                answer.set_exception(error)

        with self._lock:
            if self._loop is None:
                raise self._not_running()
            self._queries.add(answer)
            self._loop.call_soon_threadsafe(look)
        return answer.result()

    def _not_running(self) -> NotRunningError:
        return NotRunningError(f"this instance of {self._program.application} is not running")

    def find(self, store: str, key: object, *, stale: bool = False) -> Found:
        """Query on the loop of `run`; the result includes the task, its role and its lag."""
        part, step = self.step_of(store)
        task = Task(part.number, self._partition(part, step, key))
        work = self.running_task(task)
        followed = self.followed_task(task) if work is None and stale else None
        work, lag = followed or (work, 0)
        if not isinstance(work, ProgramTask):
            start = self.start_of(task)
            owner = ("", "") if start is None else (start.member, start.url)
            raise KeyElsewhereError(store, str(task), *owner)
        return Found(step.get(work.stores[store], key), task, followed is None, lag)

    def step_of(self, store: str) -> tuple[Part, Storing]:
        """Return the step that owns a store, and its part of the program.

        Raises:
            NoSuchStoreError: The program has no store with this name.
        """
        for part in self._program.parts:
            for step in part.stores:
                if step.name == store:
                    return part, step
        names = ", ".join(self.stores) or "none"
        raise NoSuchStoreError(
            f"{self._program.application} has no store {store!r}; it has {names}"
        )

    def _partition(self, part: Part, step: Storing, key: object) -> int:
        count = self.partitions_of(part.topics[0])
        if not count:
            raise NotRunningError(f"this instance of {self._program.application} is just starting")
        return partition_for_key(step.partition_key(key), count)


def _is_running(loop: asyncio.AbstractEventLoop | None) -> bool:
    """Whether the caller runs on this loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _folder(program: Program, state_dir: str | Path | None, store: str) -> Path | None:
    if store not in ("rocksdb", "memory"):
        raise ConfigError(f'store={store!r} is neither "rocksdb" nor "memory"')
    if store == "memory":
        if state_dir is not None:
            raise ConfigError('state_dir is for store="rocksdb"; with store="memory" leave it out')
        return None
    if state_dir is None and any(part.stores for part in program.parts):
        raise ConfigError(
            f"{program.application} has state: give state_dir, a directory that outlives the"
            ' process and that no other process uses, or store="memory" to replay all of it from'
            " the changelogs at each start"
        )
    return None if state_dir is None else Path(state_dir)
