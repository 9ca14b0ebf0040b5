"""Start a broker inside this process: `with EmbeddedBroker() as broker`."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from kohort.broker.config import BrokerConfig
from kohort.broker.handlers.topics import NewTopics, check_configs
from kohort.broker.server import Broker
from kohort.errors import LocalProtocolError
from kohort.group.events import GroupEvent

if TYPE_CHECKING:
    from kohort.broker.settings import BrokerSettings

Listener = Callable[[GroupEvent], None]


class EmbeddedBroker:
    """A Kafka-compatible broker in this process, for tests, demos and development.

    As a context manager it runs on a thread of its own; as an async context manager on the loop of
    whoever enters it.

        with EmbeddedBroker() as broker:
            producer = Producer(bootstrap_servers=broker.bootstrap_servers)
    """

    def __init__(
        self, data_dir: Path | str | None = None, **settings: Unpack[BrokerSettings]
    ) -> None:
        """Prepare a broker; entering the context starts it.

        Args:
            data_dir: Directory for everything that shall survive; None uses a temporary one that
                is removed at the end.
            settings: Fields of `BrokerConfig`.

        Raises:
            ConfigError: A setting is unknown or makes no sense.
        """
        self.config = BrokerConfig.of(settings)
        self._data_dir = Path(data_dir) if data_dir is not None else None
        self._temporary: Path | None = None
        self._broker: Broker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._listeners: list[Listener] = []

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients, as `host:port`."""
        return self._running().address

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` on the broker's thread with everything its group coordinator observes."""
        self._listeners.append(listener)

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; from any thread.

        Raises:
            KafkaError: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS or
                INVALID_CONFIG.
        """

        def create() -> None:
            new = NewTopics(self._running().context)
            new.check_name(name)
            check_configs(configs or {})
            new.add(name, partitions, configs or {})
            new.store()

        self._call(create)

    # ------------------------------------------------------------------------------- thread

    def start(self) -> Self:
        """Start the broker on a thread of its own; returns when clients are served."""
        ready: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._serve, args=(ready,), name="kohort-broker", daemon=True
        )
        self._thread.start()
        try:
            ready.result()
        except BaseException:
            self._thread.join()
            raise
        return self

    def stop(self) -> None:
        """Stop the broker, flush, and wait for its thread."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(self._stopping.set)
        thread.join()
        self._thread = None

    def _serve(self, ready: Future[None]) -> None:
        asyncio.run(self._life(ready))

    async def _life(self, ready: Future[None]) -> None:
        self._stopping = asyncio.Event()
        try:
            await self.__aenter__()
        except BaseException as error:  # noqa: BLE001  # handed to the thread that waits
            ready.set_exception(error)
            return
        ready.set_result(None)
        await self._stopping.wait()
        await self.__aexit__(None, None, None)

    def __enter__(self) -> Self:
        """Start; see `start`."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop; see `stop`."""
        self.stop()

    # ------------------------------------------------------------------------------- loop

    async def __aenter__(self) -> Self:
        """Start on the running loop."""
        if self._broker is not None:
            raise LocalProtocolError("this broker is running already")
        if self._data_dir is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="kohort-broker-"))
        broker = Broker(self._data_dir or self._temporary or Path(), self.config, self._publish)
        try:
            await broker.start()
        except BaseException:
            self._remove_temporary()
            raise
        self._broker, self._loop = broker, asyncio.get_running_loop()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        broker, self._broker, self._loop = self._running(), None, None
        await broker.stop()
        self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    # ------------------------------------------------------------------------------- inside

    def _running(self) -> Broker:
        if self._broker is None:
            raise LocalProtocolError("this broker is not running; enter its context first")
        return self._broker

    def _publish(self, event: GroupEvent) -> None:
        for listener in tuple(self._listeners):
            listener(event)

    def _call(self, action: Callable[[], None]) -> None:
        """Run `action` on the broker's loop, from whichever thread."""
        if self._thread is None or threading.current_thread() is self._thread:
            action()
            return
        done: Future[None] = Future()

        def run() -> None:
            try:
                action()
                done.set_result(None)
            except BaseException as error:  # noqa: BLE001  # handed to the thread that waits
                done.set_exception(error)

        if self._loop is None:
            raise LocalProtocolError("this broker is not running; enter its context first")
        self._loop.call_soon_threadsafe(run)
        done.result()
