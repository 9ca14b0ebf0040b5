"""A broker inside this process: `with EmbeddedBroker() as broker`."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from kohort.broker.authorization.acls import Acl, checked
from kohort.broker.background import Background
from kohort.broker.config import BrokerConfig
from kohort.broker.faults import Faults
from kohort.broker.handlers.topics import NewTopics, check_configs
from kohort.broker.net.security import properties
from kohort.broker.net.server import Broker
from kohort.errors import ConfigError, LocalProtocolError
from kohort.group.events import GroupEvent

if TYPE_CHECKING:
    from kohort.broker.settings import BrokerSettings

Listener = Callable[[GroupEvent], None]
_NOT_RUNNING = "this broker is not running; enter its context first"
_FORKED = "this broker runs in the parent process: a forked child can only connect to it"


class EmbeddedBroker:
    """A Kafka-compatible broker in this process, for tests, demos and development.

    As a context manager it runs on its own thread; as an async context manager on the running loop.

    Attributes:
        config: Its settings.
        faults: Faults to inject (`kohort.broker.faults`); none at first.

        with EmbeddedBroker() as broker:
            producer = Producer(bootstrap_servers=broker.bootstrap_servers)
    """

    def __init__(
        self, data_dir: Path | str | None = None, **settings: Unpack[BrokerSettings]
    ) -> None:
        """Configure a broker; entering the context starts it.

        Args:
            data_dir: Data directory; with None, a temporary one that is removed at the end.
            settings: Fields of `BrokerConfig`.

        Raises:
            ConfigError: A setting is unknown or invalid.
        """
        self.config = BrokerConfig.of(settings)
        self._data_dir = Path(data_dir) if data_dir is not None else None
        self._listeners: list[Listener] = []
        self.faults = Faults()
        self._service = _Service(self._data_dir, self.config, self._listeners, self.faults)
        self._background: Background | None = None
        self._forgotten: weakref.finalize[[], Self] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients, as `host:port`."""
        return self._running().address

    def client_settings(
        self, user: str | None = None, mechanism: str | None = None
    ) -> dict[str, str]:
        """Return the settings that a client needs to connect, by Kafka's names.

        With OAUTHBEARER the client also needs a token provider, and the user is ignored.

        Args:
            user: The user that logs in, if clients must; None: the first user.
            mechanism: The SASL mechanism; None: the strongest enabled one.

        Raises:
            ConfigError: The user does not exist, or the mechanism is not enabled.
            LocalProtocolError: The broker is not running.
        """
        security = self.config.security
        known = {} if security is None else security.client_settings(user, mechanism)
        return {"bootstrap.servers": self.bootstrap_servers, **known}

    def librdkafka_settings(
        self, user: str | None = None, mechanism: str | None = None
    ) -> dict[str, str]:
        """Return settings for librdkafka's clients, which reject unknown settings.

        Args:
            user: The user that logs in, if clients must; None: the first user.
            mechanism: The SASL mechanism; None: the strongest enabled one.
        """
        security = self.config.security
        known = {} if security is None else security.librdkafka_settings(user, mechanism)
        return {"bootstrap.servers": self.bootstrap_servers, **known}

    def java_settings(
        self, user: str | None = None, mechanism: str | None = None
    ) -> dict[str, str]:
        """Return settings for Java clients; Spark's source takes them with the prefix "kafka.".

        Args:
            user: The user that logs in, if clients must; None: the first user.
            mechanism: The SASL mechanism; None: the strongest enabled one.
        """
        security = self.config.security
        known = {} if security is None else security.java_settings(user, mechanism)
        return {"bootstrap.servers": self.bootstrap_servers, **known}

    def java_properties(self, user: str | None = None, mechanism: str | None = None) -> str:
        """Return Java settings as the content of a properties file, for `--command-config`.

        Args:
            user: The user that logs in, if clients must; None: the first user.
            mechanism: The SASL mechanism; None: the strongest enabled one.
        """
        return properties(self.java_settings(user, mechanism))

    @property
    def directory(self) -> Path:
        """The data directory, while the broker is running.

        Raises:
            LocalProtocolError: The broker is not running.
        """
        return self._running().directory

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` on the broker's thread with each event of its group coordinator."""
        self._listeners.append(listener)

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; from any thread.

        Args:
            name: Name of the topic.
            partitions: Number of partitions.
            configs: Its settings, by Kafka's names.

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

    def create_acls(self, acls: Iterable[Acl]) -> None:
        """Add ACLs; from any thread. They take effect with `Security(super_users=...)`.

            may_read = Acl("User:bob", Operation.READ, Resource.TOPIC, "flights")
            broker.create_acls([may_read])

        Args:
            acls: The ACLs.

        Raises:
            ConfigError: An ACL is invalid, or the broker has no authorization.
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        added = checked(acls)

        def create() -> None:
            known = self._running().context.acls
            if known is None:
                raise ConfigError("ACLs need EmbeddedBroker(security=Security(super_users=...))")
            known.change(added=added)

        self._call(create)

    # ------------------------------------------------------------------------------- thread

    def start(self) -> Self:
        """Start the broker on its own thread; return once clients are served.

        If a signal handler interrupts this with an exception, the broker ends as well.

        Raises:
            DataDirectoryError: The directory is in use or damaged.
            KohortError: The port cannot be listened on, or no address to advertise is known.
            LocalProtocolError: The broker is already running, or was stopped in the meantime.
        """
        return self._started(Background(self._service.start, self._service.stop))

    def _started(self, background: Background) -> Self:
        if self._background is not None and not self._background.is_over:
            raise LocalProtocolError("this broker is already running")
        try:
            self._background = background
            background.begin()
        except BaseException:
            background.end()
            raise
        return self

    def stop(self) -> None:
        """Stop and flush the broker, and wait for its thread.

        If a signal handler interrupts this with an exception, the broker ends anyway.
        """
        background = self._background
        if background is None:
            return
        try:
            background.end()
        except BaseException:
            background.tell()
            raise
        self._background = None
        if self._forgotten is not None:
            self._forgotten.detach()

    def __enter__(self) -> Self:
        """Start; see `start`."""
        background = Background(self._service.start, self._service.stop)
        # A signal handler may raise before `__exit__` begins: only this stops the broker then.
        self._forgotten = weakref.finalize(self, background.tell)
        self._forgotten.atexit = False
        return self._started(background)

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
        await self._service.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        await self._service.stop()

    # ------------------------------------------------------------------------------- inside

    def _running(self) -> Broker:
        return self._service.running()

    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None:
        return self._service.loop

    def _call(self, action: Callable[[], None]) -> None:
        """Run `action` on the broker's loop, from any thread."""
        if self._background is None or self._background.is_inside:
            action()
            return
        done: Future[None] = Future()

        def run() -> None:
            try:
                action()
                done.set_result(None)
            except BaseException as error:  # noqa: BLE001  # passed to the waiting thread
                done.set_exception(error)

        loop = self._loop
        if loop is None:
            raise LocalProtocolError(_NOT_RUNNING)
        if not self._background.is_here:
            raise LocalProtocolError(_FORKED)
        loop.call_soon_threadsafe(run)
        done.result()


class _Service:
    """The running broker; does not refer to its `EmbeddedBroker`, which may be collected before."""

    def __init__(
        self,
        data_dir: Path | None,
        config: BrokerConfig,
        listeners: list[Listener],
        faults: Faults,
    ) -> None:
        self._faults = faults
        self._data_dir = data_dir
        self._config = config
        self._listeners = listeners
        self._temporary: Path | None = None
        self._removal: weakref.finalize[..., _Service] | None = None
        self._broker: Broker | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    def running(self) -> Broker:
        """Return the running broker.

        Raises:
            LocalProtocolError: It is not running.
        """
        if self._broker is None:
            raise LocalProtocolError(_NOT_RUNNING)
        return self._broker

    async def start(self) -> None:
        """Start on the running loop."""
        if self._broker is not None:
            raise LocalProtocolError("this broker is already running")
        folder = self._data_dir or self._temporary_folder()
        broker = Broker(folder, self._config, self._publish, self._faults)
        try:
            await broker.start()
        except BaseException:
            self._remove_temporary()
            raise
        self._broker, self.loop = broker, asyncio.get_running_loop()

    async def stop(self) -> None:
        """Stop, and release the directory."""
        broker, self._broker, self.loop = self.running(), None, None
        await broker.stop()
        self._remove_temporary()

    def _temporary_folder(self) -> Path:
        """Create a folder that also the end of the process removes, if the broker still runs."""
        folder = self._temporary = Path(tempfile.mkdtemp(prefix="kohort-broker-"))
        self._removal = weakref.finalize(self, _remove, folder, os.getpid())
        return folder

    def _remove_temporary(self) -> None:
        if self._removal is not None:
            self._removal()
            self._temporary = self._removal = None

    def _publish(self, event: GroupEvent) -> None:
        for listener in tuple(self._listeners):
            listener(event)


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked child leaves its parent's folder alone
        shutil.rmtree(folder, ignore_errors=True)
