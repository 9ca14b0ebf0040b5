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

# Kafka waits 10 s before it looks at new topics for an expression a second time, so as not to
# search thousands of names again and again; tests would wait as long.
_REGEX_MIN_REFRESH_INTERVAL_MS = 500


class BrokerConfig(Struct, frozen=True, kw_only=True):
    """What can be set; defaults are for tests and demos, Kafka's own where nothing speaks against.

    Attributes:
        host: Address to listen on; loopback only, unless `allow_remote` says otherwise.
        port: Port to listen on; 0 takes a free one.
        allow_remote: Permit an address that other machines reach although no login is needed; see
            `security`.
        advertised: `HOST[:PORT]` that clients are told to connect to; an address of IPv6 is in
            brackets. By default what is listened on; where that is every address of the machine,
            the machine's full name or the address that it sends from.
        broker_rack: Where this broker is, empty when that is not said (KIP-36, KIP-881).
        auto_create_topics: Make a topic when a client that permits it asks for an unknown one.
        num_partitions: Partitions of a topic made without a number.
        log_segment_bytes: A closed segment may be removed or compacted, an open one not.
        message_max_bytes: Largest record batch.
        log_retention_ms: Age at which closed segments go, -1 for never.
        log_retention_bytes: Size of a partition above which its oldest closed segments go.
        flush_interval_ms: Time between two fsyncs; None leaves it to the operating system. Whatever
            was acknowledged survives the broker's death either way; only after an fsync does it
            survive the machine's.
        fetch_max_bytes: Most bytes of records in one response; bounds what a client that does not
            read can cost.
        max_connections: Connections beyond this are closed at once.
        max_unauthenticated_connections: Where clients must authenticate: connections that have not
            yet; beyond this the oldest of them is closed.
        connections_max_idle_ms: A connection that sends nothing for so long is closed.
        offsets_topic_num_partitions: Partitions of `__consumer_offsets`; never change it.
        offsets_topic_segment_bytes: Small, so that compaction keeps restarts quick.
        transaction_state_log_num_partitions: Partitions of `__transaction_state`; never change it.
        transaction_version: Version of transactions that clients are told of: with 2 each has an
            epoch of its own, and writing to a partition makes it take part (KIP-890); 0 or 1 for
            how it was before.
        transaction_max_timeout_ms: Longest time that a transaction may take.
        transactional_id_expiration_ms: How long a transactional producer may be silent before it is
            forgotten.
        group_min_session_timeout_ms: Shortest session timeout a member may ask for; Kafka's 6000
            would make every test of a crash wait so long.
        group_max_session_timeout_ms: Longest one.
        group_initial_rebalance_delay_ms: How long a new group waits for more members (KIP-134).
            Kafka's default of 3000 suits production; here it would only make tests slow.
        group_max_size: Most members of one group.
        protocols: Group protocols that are served; "draft" is for study, see docs/draft.md.
        draft_assignor: What shares the partitions of draft groups out: "range" or "roundrobin".
        offset_metadata_max_bytes: Longest text beside a stored position.
        group_consumer_session_timeout_ms: How long a member of a consumer group may be silent; it
            has no say in that itself (KIP-848).
        group_consumer_min_session_timeout_ms: Shortest such time that a group may set for itself;
            Kafka's 45000 would make every test of a crash wait so long.
        group_consumer_max_session_timeout_ms: Longest one.
        group_consumer_heartbeat_interval_ms: How often it sends a heartbeat. With Kafka's 5000 a
            test would wait that long for each partition that moves.
        group_consumer_min_heartbeat_interval_ms: Shortest interval that a group may set.
        group_consumer_max_heartbeat_interval_ms: Longest one.
        group_consumer_max_size: Most members of one consumer group.
        group_consumer_assignors: The assignors that members may ask for, "uniform" and "range";
            the first one is the default.
        group_consumer_rack_aware: Whether they look at racks too; Kafka's do not any more.
        group_consumer_assignment_interval_ms: Least time between two target assignments of one
            group (KIP-1263). Kafka's 1000 would hold each new member of a test up.
        group_consumer_min_assignment_interval_ms: Shortest such time that a group may set.
        group_consumer_max_assignment_interval_ms: Longest one.
        group_consumer_client_assignment_timeout_ms: How long a member may take to make its group's
            assignment; then the broker makes it. Kafka asks no member.
        group_consumer_regex_refresh_interval_ms: Age at which what a regular expression stands for
            is looked up again, though no topic was created.
        group_consumer_migration_policy: Which way a group may go while it has members: "upgrade"
            to the consumer protocol, "downgrade" back to the classic one, "bidirectional" or
            "disabled".
        offsets_retention_ms: How long unused offsets are kept (KIP-211).
        offsets_retention_check_interval_ms: How often older ones are looked for.
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
        """Refuse what cannot work, or what would open the broker to the network by accident."""
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
                f"protocols={self.protocols!r} must be of classic, consumer and draft, and"
                " include classic"
            )
        if self.draft_assignor not in ("range", "roundrobin"):
            raise ConfigError(f"draft_assignor={self.draft_assignor!r} is not range or roundrobin")
        policy = self.group_consumer_migration_policy
        if policy not in POLICIES:
            raise ConfigError(
                f"group_consumer_migration_policy={policy!r} is none of {', '.join(POLICIES)}"
            )

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> BrokerConfig:
        """Make a configuration of keyword arguments.

        Args:
            settings: The fields, by name.

        Raises:
            ConfigError: One is unknown; the message names one that is spelt alike, if any is.
        """
        known = list(defaults(cls))
        for name in settings:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ConfigError(f"unknown setting {name!r}{hint}")
        return cls(**settings)  # type: ignore[arg-type]  # the names were checked, values are the caller's

    def log_defaults(self) -> LogConfig:
        """Return the settings of logs whose topic has none of its own."""
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
        """Return the settings of the group coordinator; most have the same name here."""
        known = defaults(type(self))
        same = [name for name in defaults(CoordinatorConfig) if name in known]
        return CoordinatorConfig(
            regex_min_refresh_interval_ms=_REGEX_MIN_REFRESH_INTERVAL_MS,
            **{name: getattr(self, name) for name in same},
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    return host in ("localhost", "::1") or host.startswith("127.")
