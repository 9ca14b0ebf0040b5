"""Settings: Kafka's own keys, as keyword arguments (`group_id`) or with dots (`group.id`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import get_annotations
from typing import Any, Literal, TypeAlias, TypeVar

from kohort.client.config.arguments import mapping, shown
from kohort.client.config.contradictions import dotted, settled
from kohort.client.config.security import (
    ALIASES,
    SecurityConfig,
    is_security_text,
    security_text,
    without_aliases,
)
from kohort.client.config.unsupported import has_no_effect, why_rejected
from kohort.client.config.values import (
    address,
    boolean,
    integer,
    legal_id,
    one_of,
    strings,
    text_of,
)
from kohort.client.consumer.membership.named_assignors import named_assignors
from kohort.errors import ConfigError, KohortError
from kohort.group.assignors.interface import Assignor
from kohort.group.events import GroupEvent
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import defaults
from kohort.wire.records.header import Compression

C = TypeVar("C", bound="ClientConfig")

# Takes topic, key and number of partitions; None leaves the choice to the producer.
Partitioner: TypeAlias = Callable[[str, "bytes | None", int], "int | None"]

_MIB = 1024 * 1024
# The shortest wait, even if iteration ends sooner: brokers must not answer in a busy loop.
_SHORTEST_FETCH_MS = 50
_COUNTED = ("_ms", "_bytes", "_records", "_size")
# Smaller values cannot work, and the resulting errors would blame the broker or the record.
_AT_LEAST_ONE: tuple[str, ...] = ("heartbeat_interval_ms", "max_poll_interval_ms")
_AT_LEAST_ONE += ("request_timeout_ms", "session_timeout_ms", "max_poll_records")
_AT_LEAST_ONE += ("buffer_memory", "max_request_size", "max_in_flight_requests_per_connection")
_AT_LEAST_ONE += ("transaction_timeout_ms", "metadata_recovery_rebootstrap_trigger_ms")

AssignorsGiven: TypeAlias = (
    str | Assignor | type[Assignor] | Sequence[str | Assignor | type[Assignor]]
)
"""Assignors in settings: objects, classes, names or import paths, or a single one."""

OnCommit: TypeAlias = Callable[
    [Mapping[TopicPartition, OffsetAndMetadata], KohortError | None], object
]
"""Called with the offsets of a commit, and None or the error."""


class ClientConfig(SecurityConfig, frozen=True, kw_only=True):
    """Settings of every client.

    Attributes:
        bootstrap_servers: `host:port` of some brokers, separated by commas or in a sequence.
        client_id: Name of the client in the broker's logs.
        request_timeout_ms: Maximum time for one request.
        default_api_timeout_ms: Maximum time for one call, including all retries of requests; if not
            set, at least `request_timeout_ms`.
        retry_backoff_ms: First pause before a request is retried.
        retry_backoff_max_ms: Longest such pause; if not set, at least the first.
        reconnect_backoff_ms: First pause before reconnecting to a broker.
        reconnect_backoff_max_ms: Longest such pause; if not set, at least the first.
        socket_connection_setup_timeout_ms: Maximum time for connecting; at most
            `request_timeout_ms`.
        metadata_max_age_ms: Metadata is refreshed after this time.
        max_in_flight_requests_per_connection: Maximum unanswered requests per connection.
        connections_max_idle_ms: A connection that was idle for this long is closed instead of
            reused: a load balancer in between may have dropped it.
        metadata_recovery_rebootstrap_trigger_ms: If no known broker answers metadata requests for
            this long, the bootstrap servers are asked (KIP-1102).
    """

    bootstrap_servers: str | Sequence[str] = "localhost:9092"
    client_id: str = "kohort"
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    metadata_max_age_ms: int = 300_000
    max_in_flight_requests_per_connection: int = 5
    connections_max_idle_ms: int = 540_000
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000

    def __post_init__(self) -> None:
        """Check the values."""
        self.check_security([host for host, _ in self.addresses()])
        for name in defaults(type(self)):
            value = getattr(self, name)
            if value is not None and name in _AT_LEAST_ONE and value < 1:
                raise ConfigError(f"{dotted(name)} is {value}; it must be at least 1")
            if value is not None and name.endswith(_COUNTED) and value < 0:
                raise ConfigError(f"{dotted(name)} is {value}; it cannot be negative")

    @property
    def setup_ms(self) -> int:
        """Maximum time for opening a connection, in milliseconds."""
        return min(self.socket_connection_setup_timeout_ms, self.request_timeout_ms)

    def addresses(self) -> list[tuple[str, int]]:
        """Return the bootstrap addresses as host and port."""
        servers = strings("bootstrap.servers", self.bootstrap_servers)
        used = self.security_protocol
        found = [address(server.strip(), used) for server in servers if server.strip()]
        if not found:
            raise ConfigError("bootstrap.servers is empty")
        return found


class ConsumerConfig(ClientConfig, frozen=True, kw_only=True):
    """Settings of a consumer besides `ClientConfig`; each is Kafka's setting of that name.

    Attributes:
        group_id: The group to join and to commit offsets to.
        group_instance_id: Id of a static member (KIP-345).
        group_protocol: "classic", or "consumer" for the protocol of KIP-848, in which the broker
            assigns; "draft" is for study (docs/internals/draft.md) and needs a Kohort broker that
            serves it.
        group_remote_assignor: With "consumer": the broker's assignor to request, "uniform" or
            "range"; None leaves the choice to the broker.
        group_local_assignors: With "consumer": assignors that this client can run itself, in order
            of preference, as objects or by name. A broker that asks members for assignments, such
            as the embedded one, uses them once all members have one in common.
        session_timeout_ms: A member without a heartbeat for this long is considered dead.
        heartbeat_interval_ms: Approximate time between heartbeats, which are spread over a session.
        max_poll_interval_ms: Maximum time between polls; a slower member leaves its group.
        max_poll_records: Maximum number of records from one `poll`.
        partition_assignment_strategy: Assignors in order of preference, or a single one: as
            objects, as classes, by name, or by import path, "package.module:Class".
        enable_auto_commit: Whether positions are committed automatically.
        auto_commit_interval_ms: Time between automatic commits.
        enable_auto_offset_store: Whether asking for more records marks the earlier ones as
            processed; if not, only `store_offsets` does. This applies to auto-commit, and to
            `commit` without offsets.
        auto_offset_reset: Where to start without a committed offset: "earliest", "latest", "none".
        isolation_level: "read_committed" leaves out aborted transactions and waits for open ones.
        fetch_min_bytes: The broker answers a fetch once it has this many bytes.
        fetch_max_wait_ms: The broker answers a fetch after this time at the latest.
        fetch_max_bytes: Maximum bytes of one answer, and roughly of a consumer's buffer.
        max_partition_fetch_bytes: Maximum bytes of one partition in one answer.
        check_crcs: Whether to check the CRC of fetched batches.
        client_rack: The client's rack, for rack-aware assignors (KIP-881).
        allow_auto_create_topics: Whether requesting metadata of a topic may create it.
        exclude_internal_topics: Whether a pattern leaves out Kafka's internal topics.
        key_deserializer: Converts the bytes of a key; not called for null.
        value_deserializer: Converts the bytes of a value; not called for null.
        consumer_timeout_ms: How long iteration waits for a record before it ends; None for no
            limit.
        on_commit: Called with the offsets of each auto-commit, and of each `commit_async` without a
            callback of its own, and None or the error; during a later poll or `close`.
        event_listener: Called with events of the group member (`kohort.group.events`), in another
            thread.
    """

    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: Literal["classic", "consumer", "draft"] = "classic"
    group_remote_assignor: str | None = None
    group_local_assignors: AssignorsGiven = ()
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    max_poll_records: int = 500
    partition_assignment_strategy: AssignorsGiven = ("range", "cooperative-sticky")
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    enable_auto_offset_store: bool = True
    auto_offset_reset: Literal["earliest", "latest", "none"] = "latest"
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 * _MIB
    max_partition_fetch_bytes: int = _MIB
    check_crcs: bool = True
    client_rack: str | None = None
    allow_auto_create_topics: bool = True
    exclude_internal_topics: bool = True
    key_deserializer: Callable[[bytes], object] | None = None
    value_deserializer: Callable[[bytes], object] | None = None
    consumer_timeout_ms: int | None = None
    on_commit: OnCommit | None = None
    event_listener: Callable[[GroupEvent], None] | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        ClientConfig.__post_init__(self)
        one_of("group.protocol", self.group_protocol, ("classic", "consumer", "draft"))
        if self.group_remote_assignor is not None and self.group_protocol != "consumer":
            raise ConfigError("group.remote.assignor needs group.protocol=consumer")
        if self.group_local_assignors and self.group_protocol != "consumer":
            raise ConfigError(
                "group.local.assignors needs group.protocol=consumer; with the classic protocol set"
                " partition.assignment.strategy"
            )
        one_of("auto.offset.reset", self.auto_offset_reset, ("earliest", "latest", "none"))
        levels = ("read_uncommitted", "read_committed")
        one_of("isolation.level", self.isolation_level, levels)
        if self.group_id == "":
            raise ConfigError("group.id is empty; leave it out to be in no group")
        if self.group_instance_id is not None:
            legal_id("group.instance.id", self.group_instance_id)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat.interval.ms is {self.heartbeat_interval_ms}; it must be below"
                f" session.timeout.ms, which is {self.session_timeout_ms}"
            )
        if self.group_protocol == "classic":
            self.assignors()
        self.local_assignors()

    @property
    def fetch_wait_ms(self) -> int:
        """Maximum wait of a broker for records: iteration that ends sooner needs two answers."""
        if self.consumer_timeout_ms is None:
            return self.fetch_max_wait_ms
        return min(self.fetch_max_wait_ms, max(self.consumer_timeout_ms // 2, _SHORTEST_FETCH_MS))

    def assignors(self) -> list[Assignor]:
        """Return the assignors of the classic protocol, in order of preference."""
        key = "partition.assignment.strategy"
        found = named_assignors(key, self.partition_assignment_strategy)
        if not found:
            raise ConfigError(f"{key} is empty")
        return found

    def local_assignors(self) -> list[Assignor]:
        """Return the assignors to run with KIP-848, in order of preference; often none."""
        found = named_assignors("group.local.assignors", self.group_local_assignors)
        if len({each.name for each in found}) != len(found):
            raise ConfigError("group.local.assignors has two assignors with the same name")
        return found


# How many times its size a batch may grow while the brokers or this process do not keep up.
_GROWTH = 16


class ProducerConfig(ClientConfig, frozen=True, kw_only=True):
    """Settings of a producer besides `ClientConfig`; each is Kafka's setting of that name.

    Attributes:
        acks: Which replicas must have a record before it counts as sent: "all", 1 (only the leader)
            or 0 (none).
        enable_idempotence: Whether the broker drops duplicates from retries (KIP-98).
        compression_type: "none" (or None), "gzip", "snappy", "lz4" or "zstd".
        linger_ms: How long a batch waits for more records.
        batch_size: Bytes of a full batch, before compression. While records wait, because the
            brokers or this process do not keep up, a batch may grow to 16 times that, unless `acks`
            is 0; a batch that is too large for its topic is split (KIP-126).
        buffer_memory: Maximum bytes of records waiting to be sent; beyond it, `send` waits.
        max_request_size: Maximum bytes of one record, and of one request.
        max_block_ms: Maximum time that `send` waits for memory or metadata.
        delivery_timeout_ms: A record that is not acknowledged within this time fails, regardless of
            `request_timeout_ms`. It must be above `linger_ms`; if not set, it is at least the sum
            of `linger_ms` and `request_timeout_ms`.
        partitioner: Chooses the partition of a record that is sent without one. "murmur2" (also
            "murmur2_random") maps keys like Java's producer and kafka-python, "consistent_random"
            like librdkafka by default (CRC32; an empty key counts as none). A callable gets topic,
            key (bytes or None) and the number of partitions; it returns a partition, or None to
            leave the choice to the producer. Records without a key stay together for a batch, then
            go to another partition.
        allow_auto_create_topics: Whether sending to a topic may create it, if the broker has
            auto.create.topics.enable. Java's producer always allows it.
        key_serializer: Converts a key to bytes; not called for None.
        value_serializer: Converts a value to bytes; not called for None.
        transactional_id: Makes the producer transactional (KIP-98). Use the same id in each run of
            one instance of an application: a new producer with it ends the transaction of the
            previous one, and fences that producer. It needs Apache Kafka.
        transaction_timeout_ms: The broker aborts a transaction that is open for longer than this;
            its own `transaction.max.timeout.ms` limits the value.
    """

    acks: str | int = "all"
    enable_idempotence: bool = True
    compression_type: str | None = "none"
    linger_ms: int = 5
    batch_size: int = 16_384
    buffer_memory: int = 32 * _MIB
    max_request_size: int = _MIB
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    partitioner: Literal["murmur2", "murmur2_random", "consistent_random"] | Partitioner = "murmur2"
    allow_auto_create_topics: bool = True
    key_serializer: Callable[..., bytes] | None = None
    value_serializer: Callable[..., bytes] | None = None
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        """Check the values."""
        ClientConfig.__post_init__(self)
        one_of("acks", str(self.acks), ("all", "-1", "0", "1"))
        if not callable(self.partitioner):
            named = ("murmur2", "murmur2_random", "consistent_random")
            one_of("partitioner", self.partitioner, named)
        codecs = tuple(codec.name.lower() for codec in Compression)
        if self.compression_type is not None:
            one_of("compression.type", self.compression_type, codecs)
        if self.enable_idempotence and self.required_acks != -1:
            raise ConfigError("enable.idempotence needs acks=all: set one of the two")
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > 5:
            raise ConfigError(
                "enable.idempotence needs max.in.flight.requests.per.connection of at most 5"
            )

    @property
    def largest_batch(self) -> int:
        """Maximum bytes of a batch while records wait; see `batch_size`.

        With `acks=0` the broker does not report that a batch is too large for its topic, so it
        cannot be split: then no batch grows.
        """
        growth = _GROWTH if self.required_acks else 1
        return min(self.max_request_size, growth * self.batch_size)

    @property
    def required_acks(self) -> int:
        """`acks` as encoded in requests."""
        return -1 if str(self.acks) in ("all", "-1") else int(self.acks)

    @property
    def codec(self) -> Compression:
        """`compression_type` as encoded in batches."""
        return Compression[(self.compression_type or "none").upper()]


class AdminConfig(ClientConfig, frozen=True, kw_only=True):
    """Settings of an admin client besides `ClientConfig`.

    Attributes:
        group_id: The group of calls that name no group.
    """

    group_id: str | None = None


_KINDS: tuple[type[ClientConfig], ...] = (ConsumerConfig, ProducerConfig, AdminConfig)


# Settings of all clients without effect in one of them, and what to set there instead.
_WITHOUT_EFFECT: dict[type[ClientConfig], dict[str, str]] = {
    ProducerConfig: {"default_api_timeout_ms": "max.block.ms or delivery.timeout.ms"}
}


def make(kind: type[C], settings: Mapping[str, object]) -> C:
    """Make a configuration from keyword arguments.

    Raises:
        ConfigError: A name is unknown, or a value is invalid.
    """
    known = _names([kind])
    settings = without_aliases(settings)
    for name in settings:
        if name in _WITHOUT_EFFECT.get(kind, ()):
            raise ConfigError(
                f"{dotted(name)} has no effect here: set {_WITHOUT_EFFECT[kind][name]}"
            )
        if name not in known:
            raise _unknown(name, known, lambda each: each)
    values: dict[str, Any] = {name: _typed(kind, name, value) for name, value in settings.items()}
    agreed: dict[str, Any] = dict(settled(defaults(kind), values))
    return kind(**agreed)


def from_kafka(kind: type[ClientConfig], settings: Mapping[str, object]) -> dict[str, object]:
    """Convert settings with Kafka's names to keyword arguments of a configuration.

    Settings of other clients are ignored, as Kafka's clients do, so that one file can serve them
    all. So are settings that would have no effect here, such as buffer sizes.

    Raises:
        ConfigError: A key is unknown or not supported.
    """
    own, any_client = _names([kind]), _names(_KINDS)
    taken: dict[str, object] = {}
    for key, value in mapping(settings, "settings").items():
        if not isinstance(key, str):
            raise ConfigError(f"a setting's name must be a string, not {shown(key)}")
        name = ALIASES.get(key.replace(".", "_"), key.replace(".", "_"))
        if has_no_effect(key, value):
            continue
        if name in taken:
            raise ConfigError(f"{key} is another name of {dotted(name)}: set one of them")
        if name not in any_client or "_" in key:
            raise _unknown(key, any_client, dotted)
        if name in own and name not in _WITHOUT_EFFECT.get(kind, ()):
            taken[name] = value
    return taken


def make_from_kafka(kind: type[C], settings: Mapping[str, object]) -> C:
    """Make a configuration from settings with Kafka's names; values may be strings.

    Raises:
        ConfigError: A key is unknown or not supported, or a value is invalid.
    """
    return make(kind, from_kafka(kind, settings))


def _names(kinds: Iterable[type[ClientConfig]]) -> list[str]:
    return list(dict.fromkeys(name for kind in kinds for name in defaults(kind)))


def _unknown(key: str, known: Iterable[str], spelling: Callable[[str], str]) -> ConfigError:
    reason = why_rejected(key.replace("_", "."))
    if reason:
        return ConfigError(f"{key}: {reason}")
    from difflib import get_close_matches

    near = get_close_matches(key, [spelling(name) for name in known], n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    return ConfigError(f"unknown setting {key}{hint}")


def _typed(kind: type[ClientConfig], name: str, value: object) -> object:
    """Convert a string to the type of the setting; check a number's type."""
    if is_security_text(name):
        return None if value is None else security_text(name, value)
    wanted = next(hints[name] for hints in map(get_annotations, kind.__mro__) if name in hints)
    if wanted == "int" or (wanted == "int | None" and value is not None):
        return integer(name, value)
    if wanted == "bool":
        return boolean(name, value)
    if wanted.startswith("Literal") and isinstance(value, str):
        return value.lower()
    if wanted.startswith(("Callable", "OnCommit")) and value is not None and not callable(value):
        raise ConfigError(f"{dotted(name)} must be a Python callable, not {shown(value)}")
    if name == "compression_type":  # None means none in kafka-python
        return "none" if value is None else text_of(dotted(name), value).lower()
    if wanted == "str" or (wanted == "str | None" and value is not None):
        return text_of(dotted(name), value)
    return value
