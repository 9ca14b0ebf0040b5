"""All brokers of one cluster: connections, metadata, and routing of requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable, Iterable
from contextlib import suppress
from copy import copy
from enum import Enum
from typing import TypeAlias, TypeVar

from kohort.client.blocking.lifecycle import shared
from kohort.client.config.definitions import ClientConfig
from kohort.client.measures import Traffic
from kohort.client.net.backoff import CHANCE, Backoff, Deadline, NeverABrokerError, may_pass
from kohort.client.net.connecting import Attempt, connect
from kohort.client.net.connection import Connection
from kohort.client.net.frames import Allocate, plain_buffer
from kohort.client.net.incidents import Incidents, TopicIncidents
from kohort.client.net.metadata import ClusterMetadata, Node, from_response
from kohort.client.net.reachability import Reachability, plain
from kohort.client.net.refresh_loop import (
    ASKED,
    ELSEWHERE,
    RefreshLoop,
    patience_s,
    silence,
    wants_rebootstrap,
)
from kohort.client.net.retrying import Retrying
from kohort.client.net.security.context import security_of
from kohort.client.net.transport import BrokerConnection, close_all
from kohort.errors import (
    BrokerUnavailableError,
    KafkaError,
    KohortError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimedOutError,
)
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

log = logging.getLogger("kohort.client")

R = TypeVar("R", bound=Message)
K = TypeVar("K", bound=Hashable)

_Opening: TypeAlias = asyncio.Task[BrokerConnection]


class Purpose(Enum):
    """The purpose of a connection: a broker answers one request per connection at a time.

    A long poll must not delay a commit, and a JoinGroup that waits for other members must not delay
    the LeaveGroup that cancels it.
    """

    CONTROL = "control"
    FETCH = "fetch"
    GROUP = "group"
    JOIN = "join"
    PRODUCE = "produce"


class Cluster(Retrying):
    """Connections to one cluster, on the loop that runs it.

    Args:
        config: Settings.
        allocate: Allocates memory for fetched frames.

    Attributes:
        metadata: The metadata from the last answer.
        on_metadata: Called after each answer.
        allow_auto_topic_creation: Whether a metadata request may create a topic.
        incidents: Logs each problem once.
        reachability: Tracks whether the brokers can be reached and accept the client.
        traffic: Counts connections, requests and bytes.
        watched_partitions: Returns the partitions that the client wants to use.
    """

    def __init__(self, config: ClientConfig, allocate: Allocate = plain_buffer) -> None:
        super().__init__(config)
        self.metadata = ClusterMetadata()
        self.on_metadata: list[Callable[[], None]] = []
        self.wants_all_topics = False
        self.allow_auto_topic_creation = True
        kind = type(config).__name__.removesuffix("Config").lower()
        self.incidents = Incidents(f"{kind} {config.client_id}")
        self.watched_partitions: Callable[[], Iterable[TopicPartition]] = tuple
        self.reachability = Reachability(config, self.incidents)
        self.traffic = Traffic()
        self._topic_incidents = TopicIncidents(self.incidents)
        self._security = security_of(config)
        self._allocate = allocate
        self._topics: set[str] = set()
        self._watched: frozenset[str] = frozenset()
        self._connections: dict[tuple[int, Purpose], _Opening] = {}
        self._bootstrap: dict[tuple[str, int], _Opening] = {}
        self._attempts: set[Attempt] = set()
        self._backoffs: dict[int, tuple[Backoff, float]] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._refresh_loop = RefreshLoop(
            config, self._refresh_shared, lambda: self.metadata, self._lacks_leaders, self.incidents
        )
        self._closed = False
        self._has_met_a_broker = False

    @property
    def unreachable(self) -> BrokerUnavailableError | None:
        """Why no broker could be reached at the last attempt; None when one was."""
        return self.reachability.unreachable

    # ----------------------------------------------------------------------------- metadata

    def request_refresh(self) -> None:
        """Request a refresh of the metadata soon, in the background."""
        if not self._closed:
            self._refresh_loop.request()

    async def refresh(self, deadline: Deadline) -> ClusterMetadata:
        """Fetch the metadata again, trying until the deadline.

        Raises:
            BrokerUnavailableError: No broker answered; the error names addresses and causes.
        """
        pause = self.retry_backoff()
        async with self.within(deadline, f"metadata of {self._shown_servers()}"):
            while True:
                try:
                    await self._refresh_shared()
                except BrokerUnavailableError as error:
                    await self.wait_after(error, pause, deadline)
                else:
                    return self.metadata

    async def ensure_topics(self, topics: Iterable[str], deadline: Deadline) -> ClusterMetadata:
        """Return metadata that covers all `topics`, each described or with an error.

        Raises:
            BrokerUnavailableError: No broker answered.
        """
        wanted = set(topics)
        self._topics |= wanted
        if not all(self._is_described(name) for name in wanted):
            await self.refresh(deadline)
        return self.metadata

    def _is_described(self, name: str) -> bool:
        topic = self.metadata.topics.get(name)
        return topic is not None and not topic.error_code

    async def describe(self, topics: Iterable[str] | None, deadline: Deadline) -> ClusterMetadata:
        """Return metadata of topics, or of all topics for None, without storing it.

        Raises:
            BrokerUnavailableError: No broker answered in time.
        """
        names = None if topics is None else tuple(MetadataRequestTopic(name=n) for n in topics)
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        return from_response(await self.send_any_until(request, deadline))

    def watch_topics(self, topics: Iterable[str]) -> None:
        """Keep the metadata of exactly these topics fresh."""
        wanted = set(topics)
        is_news = not wanted <= self.metadata.topics.keys()
        self._topics, self._watched = wanted, frozenset(wanted)
        if is_news:
            self._refresh_loop.request(at_once=True)

    def unwatched(self, topics: Iterable[str]) -> frozenset[str]:
        """Return the given topics whose metadata is not kept fresh."""
        return frozenset(topics) - self._topics

    def forget_topics(self, topics: Iterable[str]) -> None:
        """Stop asking for these topics, except for watched ones."""
        self._topics -= frozenset(topics) - self._watched

    def waited_for(self) -> str:
        """Describe which brokers have not answered yet; they have not failed so far."""
        tasks = (*self._connections.values(), *self._bootstrap.values())
        opened = [task.result() for task in tasks if _is_open(task)]
        causes = [f"{attempt} yet" for attempt in self._attempts]
        causes += [f"{o.address} has not answered {o.unanswered}" for o in opened if o.unanswered]
        return "; ".join(sorted(set(causes)))

    # -------------------------------------------------------------------------------- keeping

    async def _refresh_shared(self) -> None:
        """Fetch the metadata once; concurrent callers share one request."""
        asked = self._refreshing
        if asked is not None and not asked.done():
            topics = set(self._topics)
            await shared(asked)
            if topics <= self.metadata.topics.keys():
                return
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh_once())
            self._refreshing.add_done_callback(_seen)
        await shared(self._refreshing)

    async def _refresh_once(self) -> None:
        names = None if self.wants_all_topics else sorted(self._topics)
        topics = None if names is None else tuple(MetadataRequestTopic(name=n) for n in names)
        create = self.allow_auto_topic_creation
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
        response = await self.send_any(request)
        self.metadata = from_response(response)
        self._settle_bootstrap()
        for task in self._connections.values():
            self._is_usable(task)  # closes a connection that is no longer usable
        if not self._closed:
            self._refresh_loop.start()
        self._topic_incidents.judge(
            self.metadata, names or (), self.watched_partitions(), self._shown_servers()
        )
        for callback in self.on_metadata:
            callback()

    def _lacks_leaders(self) -> bool:
        wanted = [self.metadata.topics.get(name) for name in self._topics]
        return any(
            topic is None
            or topic.error_code
            or any(each.leader not in self.metadata.nodes for each in topic.partitions.values())
            for topic in wanted
        )

    # ----------------------------------------------------------------------------- requests

    async def send(
        self,
        node_id: int,
        request: Request[R],
        *,
        purpose: Purpose = Purpose.CONTROL,
        timeout_ms: int | None = None,
        at_most: int | None = None,
        call: Deadline | None = None,
    ) -> R:
        """Send a request to one broker and return its answer; `call` records a lost answer.

        Raises:
            KafkaError: The broker cannot be reached (retriable), or there was no answer in time.
            RemoteProtocolError: The server does not speak Kafka's protocol.
        """
        connection = await self.connection(node_id, purpose)
        if purpose is Purpose.JOIN and connection.load:
            # The request pending there was given up; this one would have to wait behind it.
            connection.close(RequestTimedOutError("a later request took its place"))
            connection = await self.connection(node_id, purpose)
        timeout = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        return await connection.request(request, timeout, at_most=at_most, call=call)

    async def send_any(self, request: Request[R], call: Deadline | None = None) -> R:
        """Send a request to any broker that answers, trying the least loaded one first.

        When no known broker can be reached, the bootstrap servers are asked again.

        Raises:
            BrokerUnavailableError: No broker answers; the error names each address and cause.
        """
        causes: list[str] = []
        response, why = None, silence(self.config)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s(self.config, request, self.metadata.nodes)):
                response, why = await self._send_known(request, causes, call), ""
        if why or wants_rebootstrap(response):
            self._forget_brokers(why or ASKED)
            response = None
        if response is None:
            return await self._send_bootstrap(request, causes, call)
        self.reachability.reached(self.metadata.nodes)
        return response

    async def _send_known(
        self, request: Request[R], causes: list[str], call: Deadline | None
    ) -> R | None:
        """Send a request to a known broker; return None when none answers, and note the causes."""
        for node in self._by_load():
            try:
                return await self.send(node.node_id, request, call=call)
            except KohortError as error:
                if not may_pass(error):
                    raise
                causes.append(plain(error))
        return None

    def _forget_brokers(self, why: str) -> None:
        """Forget all brokers, so that the bootstrap servers are asked (KIP-1102)."""
        self.incidents.say(f"asking the bootstrap servers {self._shown_servers()} again: {why}")
        self.metadata = replace(self.metadata, nodes={})
        self._backoffs.clear()
        for key, task in list(self._connections.items()):
            if _is_open(task):
                del self._connections[key]
                task.result().close(BrokerUnavailableError(f"{task.result().address}: {why}"))

    async def send_any_until(self, request: Request[R], deadline: Deadline) -> R:
        """Like `send_any`, but retry until the deadline.

        Raises:
            KafkaError: The deadline has passed; the cause is the last error.
        """
        pause = self.retry_backoff()
        deadline.lost = None
        async with self.within(deadline, f"{type(request).__name__} to {self._shown_servers()}"):
            while True:
                try:
                    return await self.send_any(request, deadline)
                except BrokerUnavailableError as error:
                    await self.wait_after(error, pause, deadline)

    async def _send_bootstrap(
        self, request: Request[R], causes: list[str], call: Deadline | None
    ) -> R:
        servers = self.reachability.in_turn(self.config.addresses())
        strangers = 0
        for host, port in servers:
            try:
                connection = await self._bootstrap_connection(host, port)
                self._has_met_a_broker = True  # it has announced its versions
                try:
                    timeout_ms = self.config.request_timeout_ms
                    response = await connection.request(request, timeout_ms, call=call)
                    if wants_rebootstrap(response):
                        raise BrokerUnavailableError(f"{host}:{port}: {ELSEWHERE}")
                finally:
                    self._settle_bootstrap()
            except KohortError as error:
                if not may_pass(error):
                    raise
                causes.append(plain(error))
                strangers += isinstance(error, RemoteProtocolError)
            else:
                self.reachability.reached(self.metadata.nodes)
                return response
        text = "; ".join(sorted(set(causes)))
        self.reachability.none_reached(text)
        if strangers == len(servers) and not self._has_met_a_broker:
            raise NeverABrokerError(text)  # there never was a broker, so there is none to wait for
        raise BrokerUnavailableError(text)

    # -------------------------------------------------------------------------- connections

    def opened(self, node_id: int, purpose: Purpose) -> BrokerConnection | None:
        """Return the connection to a broker for a purpose if it is open already."""
        task = self._connections.get((node_id, purpose))
        return task.result() if task is not None and self._is_usable(task) else None

    async def connection(self, node_id: int, purpose: Purpose) -> BrokerConnection:
        """Return the connection to a broker for a purpose; open it if necessary.

        Raises:
            KafkaError: The connection cannot be opened (retriable).
        """
        return await self._shared(
            self._connections, (node_id, purpose), lambda: self._open_node(node_id, purpose)
        )

    async def _bootstrap_connection(self, host: str, port: int) -> BrokerConnection:
        return await self._shared(
            self._bootstrap, (host, port), lambda: self._open(host, port, Purpose.CONTROL)
        )

    async def _shared(
        self,
        openings: dict[K, _Opening],
        key: K,
        begin: Callable[[], Coroutine[None, None, BrokerConnection]],
    ) -> BrokerConnection:
        if self._closed:
            raise LocalProtocolError("the client is closed")
        task = openings.get(key)
        if task is None or (task.done() and not self._is_usable(task)):
            task = asyncio.create_task(begin())
            task.add_done_callback(_seen)
            openings[key] = task
        return await shared(task)

    def _is_usable(self, task: _Opening) -> bool:
        if not _is_open(task):
            return False
        task.result().close_if_idle(self.config.connections_max_idle_ms)
        return task.result().is_open

    def _settle_bootstrap(self) -> None:
        """Once brokers are known, keep bootstrap connections to them and close the others."""
        if not self.metadata.nodes:
            return
        known = {(each.host, each.port): each.node_id for each in self.metadata.nodes.values()}
        for address, task in list(self._bootstrap.items()):
            if not task.done():
                continue
            if _is_open(task):
                node_id = known.get(address)
                if node_id is not None and (node_id, Purpose.CONTROL) not in self._connections:
                    self.reachability.node_reached(node_id)
                    self._connections[node_id, Purpose.CONTROL] = task
                elif task.result().load:
                    continue  # the caller that waits for the answer closes it
                else:
                    task.result().close()
            del self._bootstrap[address]

    async def _open_node(self, node_id: int, purpose: Purpose) -> BrokerConnection:
        first = Backoff(self.config.reconnect_backoff_ms, self.config.reconnect_backoff_max_ms)
        pause, not_before = self._backoffs.setdefault(node_id, (first, 0.0))
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, not_before - loop.time()))
        node = self.metadata.nodes.get(node_id)  # its address may have changed
        if node is None:
            self.request_refresh()
            raise BrokerUnavailableError(f"broker {node_id} is no longer known")
        try:
            connection = await self._open(node.host, node.port, purpose)
        except (KafkaError, RemoteProtocolError) as error:
            self.request_refresh()  # the broker may have moved, or never listened here (KIP-899)
            self._backoffs[node_id] = pause, loop.time() + pause.next_s()
            self.reachability.node_failed(node_id, plain(error))
            raise
        known = self.metadata.nodes.get(node_id)
        if known is None or (known.host, known.port) != (node.host, node.port):
            connection.close()
            raise BrokerUnavailableError(f"broker {node_id} has moved, or is no longer known")
        self.reachability.node_reached(node_id)
        pause.reset()
        self._backoffs[node_id] = pause, 0.0
        return connection

    async def _open(self, host: str, port: int, purpose: Purpose) -> BrokerConnection:
        if self.reachability.refused is not None:
            raise copy(self.reachability.refused)
        config, setup_ms = self.config, self.config.setup_ms
        machine = Connection(
            client_id=config.client_id,
            authenticator=self._security.authenticator,
            host=host,
            max_in_flight=config.max_in_flight_requests_per_connection,
            setup_timeout_ms=setup_ms,
            allocate=self._allocate if purpose is Purpose.FETCH else plain_buffer,
        )
        attempt = Attempt(f"{host}:{port}")
        self._attempts.add(attempt)
        try:
            made = await connect(host, port, machine, setup_ms / 1000, attempt, self._security)
        except KohortError as error:
            self.reachability.failed((host, port), error, self.metadata.nodes.values())
            raise
        finally:
            self._attempts.discard(attempt)
        self.reachability.accepted((host, port))
        self.reachability.watch(made)
        made.watch(self.traffic)
        return made

    def _by_load(self) -> list[Node]:
        """Return the known brokers: connected ones by load, then others, then failed ones."""
        nodes = tuple(self.metadata.nodes.values())
        return sorted(CHANCE.sample(nodes, len(nodes)), key=self._load)

    def _load(self, node: Node) -> tuple[bool, float, int]:
        task = self._connections.get((node.node_id, Purpose.CONTROL))
        is_connected = task is not None and _is_open(task)
        _, not_before = self._backoffs.get(node.node_id, (None, 0.0))
        load = task.result().load if task is not None and is_connected else 0
        return not is_connected, not_before, load

    def _shown_servers(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self.config.addresses())

    async def close(self, patience_s: float = 0.0) -> None:
        """Close all connections; see `close_all` for the argument."""
        self._closed = True
        openings = [*self._connections.values(), *self._bootstrap.values()]
        tasks = [task for task in (self._refresh_loop.task, self._refreshing, *openings) if task]
        running = [task for task in tasks if not task.done()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await close_all((each.result() for each in openings if _is_open(each)), patience_s)
        for task in tasks:
            _seen(task)


def _seen(task: asyncio.Task[object]) -> None:
    """Keep asyncio from complaining when the task's last waiter has given up."""
    if not task.cancelled():
        task.exception()


def _is_open(task: _Opening) -> bool:
    return (
        task.done() and not task.cancelled() and task.exception() is None and task.result().is_open
    )
