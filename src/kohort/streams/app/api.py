"""Applications: a name, and a program of streams and tables.

    app = App("delays")
    flights = app.topic("flights", key="str", value="json")
    flights.map(lambda key, flight: flight["delay"], value="int").count().to("counts")

Every function may be a coroutine function. Functions on streams take the key and the value, folding
functions take the state and the value, and joining functions take both values. Functions must
depend only on their arguments: after a crash, records are processed again.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from kohort.errors import LocalProtocolError
from kohort.streams.app.dsl import Stream
from kohort.streams.app.plan import OnError, Plan
from kohort.streams.app.serdes import Decoded, SerdeLike, serde_of
from kohort.streams.app.steps import Source, check_name, check_topic
from kohort.streams.errors import BuildError, NotRunningError

if TYPE_CHECKING:
    from kohort.streams.app.instance import ProgramInstance, StoreKind
    from kohort.streams.app.testing import TestDriver
    from kohort.streams.app.topology import Program
    from kohort.streams.events import StreamsEvent
    from kohort.streams.settings import StreamSettings

K = TypeVar("K")
V = TypeVar("V")


Setting: TypeAlias = Any
"""A setting of any type; its consumer checks the value."""


_ONE_SIGNAL_S = 1.0
_ON_ERROR = ("stop", "skip", "dead-letter")


class App:
    """A stream application: its name and its program.

    Args:
        name: The name of the application and of its consumer group, and the prefix of its internal
            topics.
        on_error: What to do with a record that cannot be processed. "stop" (the default) raises
            `RecordFailedError`, "skip" logs a WARNING and continues, "dead-letter" also writes the
            record to a topic, with headers that describe the error (KIP-1034).
        dead_letter_topic: The topic for dead letters; `<name>-dead-letters` by default.

    Attributes:
        name: As given.
        on_error: As given.
        dead_letter_topic: None unless `on_error` is "dead-letter".

    Raises:
        BuildError: A name or a setting is not valid.
    """

    def __init__(
        self, name: str, *, on_error: OnError = "stop", dead_letter_topic: str | None = None
    ) -> None:
        if on_error not in _ON_ERROR:
            raise BuildError(f"on_error={on_error!r} is not one of {', '.join(_ON_ERROR)}")
        if dead_letter_topic is not None and on_error != "dead-letter":
            raise BuildError('dead_letter_topic is for on_error="dead-letter"')
        self.name = check_name("an application", name)
        self.on_error: OnError = on_error
        self.dead_letter_topic: str | None = None
        if on_error == "dead-letter":
            self.dead_letter_topic = check_topic(dead_letter_topic or f"{name}-dead-letters")
        self._plan = Plan(name)
        self._topics: set[str] = set()
        self._running: ProgramInstance | None = None

    def topic(self, name: str, *, key: SerdeLike[K], value: SerdeLike[V]) -> Stream[K, V]:
        """Read a topic.

        Args:
            name: Name of the topic.
            key: The serde of its keys.
            value: The serde of its values.

        Raises:
            BuildError: The topic is already read, or the serde is unknown.
        """
        if check_topic(name) in self._topics:
            raise BuildError(
                f"topic {name} is already read: keep the stream that app.topic() returned in a"
                " variable and use it twice"
            )
        self._topics.add(name)
        label, number = f"topic {name}", self._plan.next_number
        keys, values = serde_of(key, label), serde_of(value, label)
        self._plan.add(Source(number=number, name=label, topic=name, key=keys, value=values))
        return Stream(self._plan, number, keys, values)

    def build(self) -> Program:
        """Return the program built so far, checked and divided into sub-topologies.

        Raises:
            BuildError: The program reads no topic, or writes to an internal topic by name.
        """
        from kohort.streams.app.topology import Program

        return Program(self.name, self._plan.steps, self.on_error, self.dead_letter_topic)

    def test(self, partitions: int = 1) -> TestDriver:
        """Return a driver that runs the program in memory, without a broker.

        Args:
            partitions: Number of partitions of every topic.

        Raises:
            BuildError: See `build`.
        """
        from kohort.streams.app.testing import TestDriver

        return TestDriver(self.build(), partitions)

    # ------------------------------------------------------------------------------------- running

    def instance(
        self,
        *,
        bootstrap_servers: str,
        state_dir: str | Path | None = None,
        store: StoreKind = "rocksdb",
        settings: StreamSettings | None = None,
        on_event: Callable[[StreamsEvent], None] | None = None,
        **clients: Setting,
    ) -> ProgramInstance:
        """Return an instance of the application, to run on an event loop.

        Args:
            bootstrap_servers: Brokers to connect to first.
            state_dir: Directory for state; each process needs its own.
            store: "rocksdb" (the default, which needs `state_dir`), or "memory".
            settings: The instance's settings.
            on_event: Called with each event, on the event loop.
            clients: Kafka's settings in snake_case, as `kohort.Consumer` takes them.

        Raises:
            BuildError: See `build`.
            ConfigError: A setting is missing or unknown, or reserved for the runtime.
        """
        from kohort.streams.app.instance import ProgramInstance

        given = {"bootstrap_servers": bootstrap_servers, **clients}
        return ProgramInstance(
            self.build(), state_dir, store, settings, clients=given, on_event=on_event
        )

    async def run_async(self, **settings: Setting) -> None:
        """Run an instance on the caller's event loop until `stop` is called.

        Args:
            settings: The arguments of `instance`.

        Raises:
            LocalProtocolError: An instance of this `App` is already running.
            ConfigError: See `instance`.
            StreamsError: See `StreamsInstance.run`.
            KafkaError: See `StreamsInstance.run`.
        """
        if self._running is not None:
            raise LocalProtocolError(
                f"{self.name} is already running; to run more in one process, use app.instance()"
            )
        instance = self._running = self.instance(**settings)
        try:
            await instance.run()
        finally:
            self._running = None

    def run(self, **settings: Setting) -> None:
        """Run an instance until `stop` is called, or SIGTERM or SIGINT arrive in the main thread.

        To stop, the instance commits, releases its tasks and leaves the group. A second signal, at
        least a second later, ends the process at once, even while a function of the program blocks.

        Args:
            settings: The arguments of `instance`.

        Raises:
            LocalProtocolError: An instance of this `App` is already running.
            ConfigError: See `instance`.
            StreamsError: See `StreamsInstance.run`.
            KafkaError: See `StreamsInstance.run`.
        """
        asyncio.run(self._run_with_signals(settings))

    async def _run_with_signals(self, settings: dict[str, Setting]) -> None:
        loop = asyncio.get_running_loop()
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main:
            await self.run_async(**settings)
            return
        heard: list[float] = []

        def handle(number: int, _frame: FrameType | None) -> None:
            # Python calls this between two bytecode instructions, also while a function blocks the
            # loop.
            heard.append(time.monotonic())
            # `timeout` and some supervisors signal a process and then its group: count both as one
            # signal.
            if heard[-1] - heard[0] >= _ONE_SIGNAL_S:
                signal.signal(number, signal.SIG_DFL)  # Python's own waits for all to close
                signal.raise_signal(number)
            loop.call_soon_threadsafe(self.stop)

        before = {each: signal.signal(each, handle) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            await self.run_async(**settings)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler or signal.SIG_DFL)

    def stop(self) -> None:
        """Stop `run` or `run_async` cleanly, without waiting; may be called from any thread."""
        if self._running is not None:
            self._running.stop_soon()

    def query(self, store: str, key: object, *, stale: bool = False) -> Decoded:
        """Return a key's value in a store of the running instance, or None if it has none.

        The value may come from a record that is not committed yet. In a program with coroutine
        functions it may come from a record still being processed, whose changes are undone if it
        fails. Called from a thread other than the instance's, this waits for the instance's next
        turn.

        Args:
            store: Name of the store, which is its step's name.
            key: The key; a `WindowedKey` for a windowed store.
            stale: Whether a learner or standby of this instance may answer, with older state.

        Raises:
            NotRunningError: Neither `run` nor `run_async` is running.
            NoSuchStoreError: The program has no store with this name.
            KeyElsewhereError: Another instance processes the key's task; the error names it.
        """
        if self._running is None:
            raise NotRunningError(
                f"{self.name} is not running here: call app.run() or app.run_async()"
            )
        return self._running.query(store, key, stale=stale)
