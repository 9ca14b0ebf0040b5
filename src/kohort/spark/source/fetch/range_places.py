"""Finds where to read partitions: at the leader, or a replica in the reader's rack (KIP-392)."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Mapping
from uuid import UUID

from msgspec import Struct

from kohort.client.config.definitions import ConsumerConfig
from kohort.client.config.security import SecurityConfig
from kohort.client.net.backoff import Deadline
from kohort.client.net.security.context import Security, security_of
from kohort.errors import (
    BrokerUnavailableError,
    ErrorCode,
    KafkaError,
    RemoteProtocolError,
    RequestTimedOutError,
    with_right,
)
from kohort.spark.source.fetch.range_connection import BlockingConnection, ConnectionPool
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kohort.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

Address = tuple[str, int]

_EARLIEST, _LATEST = -2, -1
_MOST_SECURITIES = 16


class Place(Struct, frozen=True):
    """Where to read a partition.

    Attributes:
        leader: Address of its leader.
        nodes: Addresses of all brokers, by node id.
        replica: Address of the follower that the leader named as closer; None: read from the
            leader.
        until: Until when the leader is not asked again for a closer replica, in seconds of
            `time.monotonic`.
    """

    leader: Address
    nodes: Mapping[int, Address]
    replica: Address | None = None
    until: float = 0.0

    @property
    def address(self) -> Address:
        """The address for the next fetch."""
        return self.leader if self.replica is None else self.replica


class TopicRemadeError(KafkaError):
    """The topic's id differs from the requested one: the topic was deleted and recreated."""

    def __init__(self, message: str) -> None:
        """Create the error with a message that names both ids."""
        super().__init__(ErrorCode.UNKNOWN_TOPIC_ID, message)


class _Known:
    """Where this process last found partitions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[tuple[str, str, int], Place] = {}

    def get(self, key: tuple[str, str, int]) -> Place | None:
        with self._lock:
            return self._places.get(key)

    def put(self, places: Mapping[tuple[str, str, int], Place]) -> None:
        with self._lock:
            self._places.update(places)

    def forget(self, key: tuple[str, str, int]) -> None:
        with self._lock:
            self._places.pop(key, None)


class _Securities:
    """A cache of security objects by settings: creating one may read files."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Hashable, Security] = {}

    def get(self, key: Hashable, settings: ConsumerConfig) -> Security:
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                found = self._kept[key] = security_of(settings)
                while len(self._kept) > _MOST_SECURITIES:
                    del self._kept[next(iter(self._kept))]
            return found


def _fingerprint(settings: ConsumerConfig) -> Hashable:
    """Return a key for security settings: their values, which stay in this process."""
    return tuple(getattr(settings, name) for name in SecurityConfig.__struct_fields__)


POOL = ConnectionPool()
_SECURITIES = _Securities()
_KNOWN = _Known()


class Places:
    """Finds places and connects to them; shares its cache with the whole process.

    Args:
        bootstrap_servers: `host:port`, comma separated.
        settings: Settings of the consumer.
    """

    def __init__(self, bootstrap_servers: str, settings: ConsumerConfig) -> None:
        # The closest replica depends on the reader's rack.
        self._scope = f"{bootstrap_servers} {settings.client_rack or ''}"
        self._settings = settings
        # Never reuse another user's connection, or one without encryption.
        self._made = (settings.client_id, _fingerprint(settings))

    def _security(self) -> Security:
        """Return the security; its files are read once for all readers of this process."""
        return _SECURITIES.get(self._made[1], self._settings)

    def find(self, topic: str, partition: int, topic_id: UUID | None, deadline: Deadline) -> Place:
        """Return the place of a partition; ask a broker if it is unknown.

        Args:
            topic: Topic name.
            partition: Partition number.
            topic_id: The required topic id; None: any.
            deadline: When to give up, in seconds of `time.monotonic`.

        Raises:
            TopicRemadeError: The topic has a different id.
            KafkaError: The partition does not exist, has no leader, or no broker answered.
        """
        key = (self._scope, topic, partition)
        known = _KNOWN.get(key)
        if known is not None:
            if known.replica is not None and time.monotonic() > known.until:
                known = Place(known.leader, known.nodes)
                _KNOWN.put({key: known})
            return known
        answer = self._ask_anyone(topic, deadline)
        found = self._places_of(_described(answer, topic, topic_id), answer)
        _KNOWN.put(found)
        if key not in found:
            raise _not_found(_described(answer, topic, topic_id), partition)
        return found[key]

    def forget(self, topic: str, partition: int) -> None:
        """Forget a partition's place, so that the next `find` asks a broker."""
        _KNOWN.forget((self._scope, topic, partition))

    def prefer(self, topic: str, partition: int, place: Place, node: int) -> Place | None:
        """Read a partition from a replica from now on; return None if its address is unknown.

        The leader names a closer replica instead of sending records. As in other clients, this
        lasts until `metadata.max.age.ms` has passed; then the leader is asked again.
        """
        address = place.nodes.get(node)
        if address is None:
            return None
        until = time.monotonic() + self._settings.metadata_max_age_ms / 1000
        preferred = Place(place.leader, place.nodes, address, until)
        _KNOWN.put({(self._scope, topic, partition): preferred})
        return preferred

    def lead(self, topic: str, partition: int, place: Place) -> None:
        """Read a partition from its leader again: the replica lacks the requested records."""
        until = time.monotonic() + self._settings.metadata_max_age_ms / 1000
        leader = Place(place.leader, place.nodes, place.leader, until)
        _KNOWN.put({(self._scope, topic, partition): leader})

    def connect(self, address: Address, deadline: Deadline) -> BlockingConnection:
        """Return a connection, an idle one if possible."""
        kept = POOL.take(*address, self._made, self._settings.connections_max_idle_ms)
        if kept is not None:
            return kept
        timeout_ms = max(1, deadline.left_ms(self._settings.socket_connection_setup_timeout_ms))
        return BlockingConnection(*address, self._settings.client_id, timeout_ms, self._security())

    def keep(self, address: Address, connection: BlockingConnection) -> None:
        """Return a connection without an unanswered request to the pool."""
        POOL.give(*address, self._made, connection)

    def bounds(
        self, topic: str, partition: int, leader: Address, deadline: Deadline
    ) -> tuple[int, int]:
        """Return the current start and end offsets of a partition's log.

        Raises:
            KafkaError: The leader refuses or does not answer.
        """
        first, last = (
            self._list(topic, partition, leader, which, deadline) for which in (_EARLIEST, _LATEST)
        )
        return first, last

    def _list(
        self, topic: str, partition: int, leader: Address, which: int, deadline: Deadline
    ) -> int:
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=which)
        request = ListOffsetsRequest(
            replica_id=-1, topics=(ListOffsetsTopic(name=topic, partitions=(wanted,)),)
        )
        connection = self.connect(leader, deadline)
        try:
            answer = connection.request(request, self._timeout_ms(deadline))
        except BaseException:
            connection.close()
            raise
        self.keep(leader, connection)
        found = [each for of_topic in answer.topics for each in of_topic.partitions]
        if len(found) != 1 or found[0].partition_index != partition:
            raise RemoteProtocolError(f"the offsets of {topic}-{partition} are not in the response")
        if found[0].error_code:
            code = found[0].error_code
            text = with_right(code, f"offsets of {topic}-{partition}", "DESCRIBE")
            raise KafkaError(code, text)
        return found[0].offset

    def _ask_anyone(self, topic: str, deadline: Deadline) -> MetadataResponse:
        request = MetadataRequest(
            topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False
        )
        causes: list[str] = []
        for address in self._settings.addresses():
            try:
                return self._ask(address, request, deadline)
            except (BrokerUnavailableError, RequestTimedOutError) as error:
                causes.append(str(error))
        raise BrokerUnavailableError("; ".join(causes))

    def _ask(
        self, address: Address, request: MetadataRequest, deadline: Deadline
    ) -> MetadataResponse:
        connection = self.connect(address, deadline)
        try:
            answer = connection.request(request, self._timeout_ms(deadline))
        except BaseException:
            connection.close()
            raise
        self.keep(address, connection)
        return answer

    def _timeout_ms(self, deadline: Deadline) -> int:
        return max(1, deadline.left_ms(self._settings.request_timeout_ms))

    def _places_of(
        self, topic: MetadataResponseTopic, answer: MetadataResponse
    ) -> dict[tuple[str, str, int], Place]:
        """Return the places of all partitions of a topic that have a leader."""
        nodes = {each.node_id: (each.host, each.port) for each in answer.brokers}
        return {
            (self._scope, topic.name or "", each.partition_index): Place(
                nodes[each.leader_id], nodes
            )
            for each in topic.partitions
            if each.leader_id in nodes
        }


def _described(
    answer: MetadataResponse, topic: str, topic_id: UUID | None
) -> MetadataResponseTopic:
    described = next((each for each in answer.topics if each.name == topic), None)
    if described is None:
        raise RemoteProtocolError(f"the metadata lacks {topic}, which was requested")
    if described.error_code:
        text = with_right(described.error_code, f"topic {topic}", "READ")
        raise KafkaError(described.error_code, text)
    # Brokers before Kafka 2.8 send no topic ids.
    if topic_id is not None and described.topic_id.int and described.topic_id != topic_id:
        raise TopicRemadeError(
            f"topic {topic} was deleted and recreated: its id was {topic_id} and is"
            f" {described.topic_id}",
        )
    return described


def _not_found(described: MetadataResponseTopic, partition: int) -> KafkaError:
    """Return why a partition was not found."""
    parts: Mapping[int, MetadataResponsePartition] = {
        each.partition_index: each for each in described.partitions
    }
    if partition not in parts:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{described.name}-{partition}")
    return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{described.name}-{partition}")
