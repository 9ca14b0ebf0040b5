"""Settings of the embedded broker, by Kafka's names."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from msgspec import Struct

from kohort.broker.log.partition_log import LogConfig
from kohort.broker.net import advertised
from kohort.broker.net.security import Security
from kohort.errors import ConfigError
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.migration.policy import POLICIES
from kohort.group.transactions.events import TransactionConfig
from kohort.values import defaults

# Kafka waits 10 s before it resolves regular expressions for new topics again, so that it does not
# search thousands of names too often; tests would have to wait as long.
_REGEX_MIN_REFRESH_INTERVAL_MS = 500


class BrokerConfig(Struct, frozen=True, kw_only=True):
    """Settings of the broker. Defaults suit tests and demos, and are Kafka's where possible.

    Attributes:
        host: Address to listen on; loopback only, unless `allow_remote` is set.
        port: Port to listen on; 0 uses a free one.
        allow_remote: Permit an address that other machines can reach although clients need not log
            in; see `security`.
        advertised: `HOST[:PORT]` that clients are told to connect to, with brackets around an IPv6
            address. Default: the address listened on; if that is all addresses of the machine, its
            full name or the source address of its packets.
        broker_rack: Rack of this broker; empty if it has none (KIP-36, KIP-881).
        auto_create_topics: Create a topic if a client asks for an unknown one and permits creation.
        num_partitions: Number of partitions of topics created without a number.
        log_segment_bytes: Size at which a segment is closed; only closed segments are removed or
            compacted.
        message_max_bytes: Largest record batch.
        log_retention_ms: Age at which closed segments are removed, -1 for never.
        log_retention_bytes: Size of a partition above which its oldest closed segments are removed,
            -1 for no limit.
        flush_interval_ms: Time between two fsyncs; None leaves them to the operating system. In
            both cases acknowledged records survive the death of the broker; only an fsync makes
            them survive that of the machine.
        fetch_max_bytes: Maximum bytes of records in one response, which limits the memory for a
            client that does not read.
        max_connections: Maximum number of connections; further ones are closed at once.
        max_unauthenticated_connections: Maximum number of connections that have yet to
            authenticate, if clients must; beyond it the oldest of them is closed.
        connections_max_idle_ms: A connection without requests for this long is closed.
        offsets_topic_num_partitions: Partitions of `__consumer_offsets`; never change it.
        offsets_topic_segment_bytes: Small, so that compaction keeps restarts quick.
        transaction_state_log_num_partitions: Partitions of `__transaction_state`; never change it.
        transaction_version: Version of transactions announced to clients. With 2, each transaction
            has its own epoch, and a write adds its partition to the transaction (KIP-890); 0 and 1
            are the earlier protocol.
        transaction_max_timeout_ms: Longest transaction timeout.
        transactional_id_expiration_ms: How long a transactional producer may be silent before its
            state is removed.
        group_min_session_timeout_ms: Shortest session timeout that members may request; with
            Kafka's 6000, each test of a crash would wait that long.
        group_max_session_timeout_ms: Longest session timeout that members may request.
        group_initial_rebalance_delay_ms: How long a new group waits for more members (KIP-134).
            Kafka's default of 3000 suits production; here it would only make tests slow.
        group_max_size: Maximum number of members of a group.
        protocols: The served group protocols; "draft" is for study, see docs/internals/draft.md.
        draft_assignor: The assignor of draft groups: "range" or "roundrobin".
        offset_metadata_max_bytes: Longest metadata of a committed offset.
        group_consumer_session_timeout_ms: How long a member of a consumer group may be silent;
            members cannot choose it (KIP-848).
        group_consumer_min_session_timeout_ms: Shortest session timeout that a group's settings may
            have; with Kafka's 45000, each test of a crash would wait that long.
        group_consumer_max_session_timeout_ms: Longest session timeout that a group's settings may
            have.
        group_consumer_heartbeat_interval_ms: Interval between a member's heartbeats. With Kafka's
            5000, a test would wait that long for each partition that moves.
        group_consumer_min_heartbeat_interval_ms: Shortest interval that a group's settings may
            have.
        group_consumer_max_heartbeat_interval_ms: Longest interval that a group's settings may have.
        group_consumer_max_size: Maximum number of members of a consumer group.
        group_consumer_assignors: The assignors that members may ask for, "uniform" and "range"; the
            first one is the default.
        group_consumer_rack_aware: Whether these assignors consider racks; those of recent Kafka do
            not.
        group_consumer_assignment_interval_ms: Minimum time between two target assignments of a
            group (KIP-1263). Kafka's 1000 would delay each new member of a test.
        group_consumer_min_assignment_interval_ms: Shortest such time that a group's settings may
            have.
        group_consumer_max_assignment_interval_ms: Longest such time that a group's settings may
            have.
        group_consumer_client_assignment_timeout_ms: How long a member may take to compute its
            group's assignment; after that the broker computes it. Kafka never asks a member.
        group_consumer_regex_refresh_interval_ms: Age at which the topics of a regular expression
            are resolved again, even if no topic was created.
        group_consumer_migration_policy: Conversions of a group that has members: "upgrade" to the
            consumer protocol, "downgrade" back to the classic one, "bidirectional" or "disabled".
        offsets_retention_ms: How long unused offsets are kept (KIP-211).
        offsets_retention_check_interval_ms: Interval between checks for expired offsets.
        security: TLS and SASL (`kohort.broker.Security`); None: neither.
    """

    host: str = "127.0.0.1"
    port: int = 0
    allow_remote: bool = False
    advertised: str | None = None
    broker_rack: str = ""
    auto_create_topics: bool = True
    num_partitions: int = 1
    log_segment_bytes: int = 128 * 1024 * 1024
    message_max_bytes: int = 1_048_588
    log_retention_ms: int = 7 * 24 * 3600 * 1000
    log_retention_bytes: int = -1
    flush_interval_ms: int | None = None
    fetch_max_bytes: int = 16 * 1024 * 1024
    max_connections: int = 10_000
    max_unauthenticated_connections: int = 1_000
    connections_max_idle_ms: int = 600_000
    offsets_topic_num_partitions: int = 50
    offsets_topic_segment_bytes: int = 4 * 1024 * 1024
    transaction_state_log_num_partitions: int = 50
    transaction_version: int = 2
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 3600 * 1000
    group_min_session_timeout_ms: int = 1_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 0
    group_max_size: int = 2_147_483_647
    protocols: tuple[str, ...] = ("classic", "consumer")
    draft_assignor: str = "range"
    offset_metadata_max_bytes: int = 4_096
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 1_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 1_000
    group_consumer_min_heartbeat_interval_ms: int = 100
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_rack_aware: bool = False
    group_consumer_assignment_interval_ms: int = 0
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_max_assignment_interval_ms: int = 15_000
    group_consumer_client_assignment_timeout_ms: int = 10_000
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_consumer_migration_policy: str = "bidirectional"
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    offsets_retention_check_interval_ms: int = 600_000
    security: Security | None = None

    def __post_init__(self) -> None:
        """Reject invalid settings, and accidental exposure to the network."""
        guarded = self.security is not None and self.security.authenticates
        if not (self.allow_remote or guarded or is_loopback(self.host)):
            raise ConfigError(
                f"host={self.host!r} can be reached from other machines, and this broker requires "
                "no authentication; require it with security=, or allow such clients: "
                "--allow-remote on the command line, allow_remote=True in Python"
            )
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port={self.port} is not a port")
        if self.advertised is not None:
            advertised.parse(self.advertised)
        for name in (
            "num_partitions",
            "offsets_topic_num_partitions",
            "transaction_state_log_num_partitions",
            "log_segment_bytes",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1")

        if self.transaction_version not in (0, 1, 2):
            raise ConfigError(f"transaction_version={self.transaction_version} is not 0, 1 or 2")
        unknown = sorted({*self.protocols} - {"classic", "consumer", "draft"})
        if unknown or "classic" not in self.protocols:
            raise ConfigError(
                f"protocols={self.protocols!r} must be among classic, consumer and draft, and"
                " include classic"
            )
        if self.draft_assignor not in ("range", "roundrobin"):
            raise ConfigError(f"draft_assignor={self.draft_assignor!r} is not range or roundrobin")
        policy = self.group_consumer_migration_policy
        if policy not in POLICIES:
            raise ConfigError(
                f"group_consumer_migration_policy={policy!r} is not among {', '.join(POLICIES)}"
            )

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> BrokerConfig:
        """Create a configuration from keyword arguments.

        Args:
            settings: The fields, by name.

        Raises:
            ConfigError: A setting is unknown; the message suggests one with a similar name.
        """
        known = list(defaults(cls))
        for name in settings:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ConfigError(f"unknown setting {name!r}{hint}")
        return cls(**settings)  # type: ignore[arg-type]  # names are checked, values by the caller

    def log_defaults(self) -> LogConfig:
        """Return the settings of logs whose topic does not override them."""
        return LogConfig(
            segment_bytes=self.log_segment_bytes,
            max_message_bytes=self.message_max_bytes,
            retention_ms=self.log_retention_ms,
            retention_bytes=self.log_retention_bytes,
        )

    def transactions(self) -> TransactionConfig:
        """Return the settings of the transaction coordinator."""
        return TransactionConfig(
            transaction_max_timeout_ms=self.transaction_max_timeout_ms,
            transactional_id_expiration_ms=self.transactional_id_expiration_ms,
        )

    def coordinator(self) -> CoordinatorConfig:
        """Return the settings of the group coordinator; most have the same names here."""
        known = defaults(type(self))
        same = [name for name in defaults(CoordinatorConfig) if name in known]
        return CoordinatorConfig(
            regex_min_refresh_interval_ms=_REGEX_MIN_REFRESH_INTERVAL_MS,
            **{name: getattr(self, name) for name in same},
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    return host in ("localhost", "::1") or host.startswith("127.")
