"""The broker: its listener, data directory, coordinators and housekeeping."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from ssl import SSLContext, SSLError
from typing import cast

from kohort.broker import dispatch
from kohort.broker.authorization.acls import Acls, principal_of
from kohort.broker.config import BrokerConfig
from kohort.broker.context import Appends, BrokerContext
from kohort.broker.coordination.coordinator import OFFSETS_TOPIC, GroupCoordinator
from kohort.broker.coordination.transactions import (
    INTERNAL_TOPICS,
    TRANSACTIONS_TOPIC,
    Transactions,
)
from kohort.broker.faults import Faults
from kohort.broker.log.compaction import compact_due
from kohort.broker.log.directory import DataDirectory
from kohort.broker.net import advertised
from kohort.broker.net.connection import Answer, Connection
from kohort.broker.net.credentials import Credentials
from kohort.broker.net.descriptors import Shortage
from kohort.broker.net.sasl import Gate, ServeUser
from kohort.broker.net.security import Security
from kohort.broker.net.unauthenticated import RateLimitedLog, UnauthenticatedConnections
from kohort.errors import KohortError
from kohort.group.events import GroupEvent
from kohort.wire.codec.limits import DEFAULT_LIMITS

logger = logging.getLogger(__name__)

_HOUSEKEEPING_S = 5.0
# Kafka's log.retention.check.interval.ms. With a shorter interval, records with old timestamps, as
# in replays and tests, would be removed before they are read.
_RETENTION_CHECK_S = 300.0
# Between the shard and the socket there are three or four futures, which take a turn of the loop
# each. With fewer turns, a request parked at shutdown would see a closed connection (C73).
_TURNS_OF_AN_ANSWER = 10
_TURNS_OF_ACCEPTING = 3
_GROUP_RECORD_MAX = 16 * 1024 * 1024


class Broker:
    """A broker on the running event loop."""

    def __init__(
        self,
        data_dir: Path,
        config: BrokerConfig,
        publish: Callable[[GroupEvent], None],
        faults: Faults | None = None,
    ) -> None:
        """Create a broker; `start` opens its data directory and its port.

        Args:
            data_dir: The data directory.
            config: Settings.
            publish: Called on the loop with every event of the group coordinator.
            faults: Faults to inject; none by default.
        """
        self._data_dir = data_dir
        self._config = config
        self._publish = publish
        self._faults = faults or Faults()
        self._connections: set[Connection] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None
        self._shortage: Shortage | None = None
        self._data: DataDirectory | None = None
        self._coordinator: GroupCoordinator | None = None
        self._transactions: Transactions | None = None
        self._context: BrokerContext | None = None
        self.port = 0

    @property
    def directory(self) -> Path:
        """The data directory."""
        return self._data_dir

    @property
    def context(self) -> BrokerContext:
        """The context of the handlers, while the broker runs."""
        assert self._context is not None
        return self._context

    async def start(self) -> None:
        """Open the directory, listen, and load the groups; return once clients are served.

        Raises:
            DataDirectoryError: The directory is in use or damaged.
            KohortError: The port cannot be listened on, or no address to advertise is known.
        """
        config = self._config
        data = self._data = DataDirectory(self._data_dir, config.log_defaults())
        try:
            await self._open(data)
        except BaseException:
            await self.stop()
            raise

    async def _open(self, data: DataDirectory) -> None:
        config = self._config
        if OFFSETS_TOPIC not in data.topics:
            settings = {
                "cleanup.policy": "compact",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
                # A group is one record; the fields that members set have their own limits.
                "max.message.bytes": str(_GROUP_RECORD_MAX),
            }
            data.create_topic(OFFSETS_TOPIC, config.offsets_topic_num_partitions, settings)
        if TRANSACTIONS_TOPIC not in data.topics:
            settings = {
                "cleanup.policy": "compact",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            }
            number = config.transaction_state_log_num_partitions
            data.create_topic(TRANSACTIONS_TOPIC, number, settings)
        partitions = data.topics[OFFSETS_TOPIC].partitions
        coordinator = GroupCoordinator(
            data, config.coordinator(), partitions, self._publish, config.broker_rack or None
        )
        self._coordinator = coordinator
        appends = Appends()
        self._transactions = Transactions(
            data, config.transactions(), coordinator, appends.appended
        )
        context = BrokerContext(
            config,
            data,
            coordinator,
            self._transactions,
            appends,
            _credentials(config.security, data),
            (config.host, 0),
            faults=self._faults,
            acls=_acls(config.security, data),
        )
        self._context = context
        await self._listen(context)
        context.address = await self._advertised()
        await coordinator.start()
        self._transactions.start()
        self._tasks.append(asyncio.create_task(self._housekeeping(data)))
        if config.flush_interval_ms is not None:
            self._tasks.append(asyncio.create_task(self._flushing(data, config.flush_interval_ms)))

    async def _listen(self, context: BrokerContext) -> None:
        config, security = self._config, self._config.security
        tls = None if security is None else security.context()
        loop = asyncio.get_running_loop()
        unauthenticated = UnauthenticatedConnections(
            config.max_unauthenticated_connections, loop.time
        )

        def connect() -> asyncio.BaseProtocol:
            if len(self._connections) >= config.max_connections:
                return _TurnedAway()
            connection = self._connection(context, unauthenticated)
            if security is None or tls is None:
                return connection
            is_enough = not security.mechanisms
            return TlsHandshake(connection, tls, is_enough, unauthenticated.log)

        try:
            self._server = await loop.create_server(connect, config.host, config.port)
        except OSError as error:
            raise KohortError(f"cannot listen on {config.host}:{config.port}: {error}") from error
        self.port = self._server.sockets[0].getsockname()[1]
        self._shortage = Shortage(loop, self.port)

    def _connection(
        self, context: BrokerContext, unauthenticated: UnauthenticatedConnections
    ) -> Connection:
        serve, security = partial(dispatch.serve, context), self._config.security
        if security is None:
            return Connection(serve, self._connections, DEFAULT_LIMITS)
        if not security.mechanisms:
            return _certified(serve, self._connections, unauthenticated)
        gate = Gate(security, context.credentials, serve, unauthenticated.log)
        connection = Connection(gate.serve, self._connections, DEFAULT_LIMITS, unauthenticated)
        gate.when_in = connection.authenticated
        return connection

    async def _advertised(self) -> tuple[str, int]:
        """Return the host and port that clients connect to."""
        config = self._config
        if config.advertised is not None:
            host, port = advertised.parse(config.advertised)
            return host, port or self.port
        if not advertised.is_wildcard(config.host):
            return config.host, self.port
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, advertised.own_name, config.host), self.port

    @property
    def address(self) -> str:
        """The advertised address, as `host:port`."""
        return advertised.shown(*self.context.address)

    async def stop(self) -> None:
        """Stop serving, answer parked requests, flush, and release the directory."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await _close(self._server)
        if self._shortage is not None:
            self._shortage.end()
        if self._coordinator is not None:
            self._coordinator.stop()
            if self._transactions is not None:
                self._transactions.stop()
            for _ in range(_TURNS_OF_AN_ANSWER):
                await asyncio.sleep(0)
        for connection in tuple(self._connections):
            connection.close()
        if self._data is not None:
            self._data.close()
            self._data = None

    # -------------------------------------------------------------------------- housekeeping

    async def _housekeeping(self, data: DataDirectory) -> None:
        retention_due = asyncio.get_running_loop().time() + _RETENTION_CHECK_S
        failed = ""
        while True:
            await asyncio.sleep(_HOUSEKEEPING_S)
            try:
                self._close_idle()
                if asyncio.get_running_loop().time() >= retention_due:
                    retention_due += _RETENTION_CHECK_S
                    self._apply_retention(data)
                await self._compact(data)
            except OSError as error:
                if str(error) != failed:
                    logger.exception("housekeeping failed; it is retried")
                failed = str(error)
            else:
                failed = ""

    async def _compact(self, data: DataDirectory) -> None:
        """Compact the logs that are due, unless groups are being loaded, which go first (B1)."""
        coordinator = self.context.coordinator
        if coordinator.is_loading():
            return
        for _ in compact_due(tuple(data.open_logs.values()), self.context.wall_ms()):
            await asyncio.sleep(0)
            if coordinator.is_loading():
                return

    def _apply_retention(self, data: DataDirectory) -> None:
        now_ms = self.context.wall_ms()
        for partition, log in tuple(data.open_logs.items()):
            if partition.topic not in INTERNAL_TOPICS:
                log.apply_retention(now_ms)

    def _close_idle(self) -> None:
        oldest = asyncio.get_running_loop().time() - self._config.connections_max_idle_ms / 1000
        for connection in tuple(self._connections):
            if connection.last_active < oldest:
                connection.close()

    async def _flushing(self, data: DataDirectory, interval_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                data.flush()
            except OSError:
                logger.exception("fsync failed; it is tried again")


def _credentials(security: Security | None, data: DataDirectory) -> Credentials:
    """Return the users and the credentials that clients have set in this directory."""
    users, mechanisms = ({}, ()) if security is None else (security.users, security.mechanisms)
    return Credentials(users, mechanisms, data.path / "scram-credentials.json", data.storage)


def _acls(security: Security | None, data: DataDirectory) -> Acls | None:
    """Return the ACLs of this directory, or None without authorization."""
    if security is None or security.super_users is None:
        return None
    principals = (f"User:{name}" for name in security.super_users)
    return Acls(principals, data.path / "acls.json", data.storage)


def _certified(
    serve: ServeUser, connections: set[Connection], unauthenticated: UnauthenticatedConnections
) -> Connection:
    """Return a connection whose client authenticates by certificate, if it has one."""

    def serve_subject(data: memoryview, host: str) -> Answer | Awaitable[Answer]:
        return serve(data, host, principal_of(connection.certificate))

    connection = Connection(serve_subject, connections, DEFAULT_LIMITS, unauthenticated)
    return connection


async def _close(server: asyncio.Server) -> None:
    """Close a listener after every accepted connection has its transport.

    asyncio drops accepted connections that have no transport when the server closes: such a client
    would wait for a response until the socket is garbage collected.
    """
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener)
    for _ in range(_TURNS_OF_ACCEPTING):
        await asyncio.sleep(0)
    server.close()


class _TurnedAway(asyncio.Protocol):
    """Closes a connection at once, because there are too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class TlsHandshake(asyncio.Protocol):
    """Performs the TLS handshake of an accepted connection, and then passes it to its `Connection`.

    Args:
        connection: Serves the requests after the handshake.
        context: TLS settings of the listener.
        is_enough: Whether the handshake authenticates the client.
        log: Logs failed handshakes.
    """

    def __init__(
        self, connection: Connection, context: SSLContext, is_enough: bool, log: RateLimitedLog
    ) -> None:
        self._connection = connection
        self._log = log
        self._context = context
        self._is_enough = is_enough
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake; the connection counts as open from here on."""
        plain = cast("asyncio.Transport", transport)
        plain.pause_reading()  # the first bytes belong to TLS
        self._connection.accepted(plain)
        self._task = asyncio.get_running_loop().create_task(self._shake_hands(plain))

    async def _shake_hands(self, plain: asyncio.Transport) -> None:
        connection, loop = self._connection, asyncio.get_running_loop()
        peer = plain.get_extra_info("peername")
        try:
            made = await loop.start_tls(plain, connection, self._context, server_side=True)
        except OSError as error:
            warn = self._log.warning if isinstance(error, SSLError) else logger.info
            host = f"/{peer[0]}" if peer else "a client"
            warn("closing the connection of %s: the TLS handshake failed: %s", host, error)
            error.__traceback__ = None  # or a reference cycle would keep the buffers of TLS
            made = None
        if made is None or plain.is_closing():
            connection.connection_lost(None)
            return
        if self._is_enough:
            connection.authenticated()
        connection.connection_made(made)
