"""Types of keyword settings, written by `python tools/setting_types.py`."""

from __future__ import annotations

from typing import TypedDict

from kohort.broker.net.security import Security


class BrokerSettings(TypedDict, total=False):
    """Settings of `EmbeddedBroker`."""

    host: str
    """Address to listen on; loopback only, unless `allow_remote` is set. Default: "127.0.0.1"."""

    port: int
    """Port to listen on; 0 uses a free one. Default: 0."""

    allow_remote: bool
    """Permit an address that other machines can reach although clients need not log in; see
    `security`. Default: False.
    """

    advertised: str | None
    """`HOST[:PORT]` that clients are told to connect to, with brackets around an IPv6 address.
    Default: the address listened on; if that is all addresses of the machine, its full name or the
    source address of its packets. Default: None.
    """

    broker_rack: str
    """Rack of this broker; empty if it has none (KIP-36, KIP-881). Default: empty."""

    auto_create_topics: bool
    """Create a topic if a client asks for an unknown one and permits creation. Default: True."""

    num_partitions: int
    """Number of partitions of topics created without a number. Default: 1."""

    log_segment_bytes: int
    """Size at which a segment is closed; only closed segments are removed or compacted. Default:
    134_217_728.
    """

    message_max_bytes: int
    """Largest record batch. Default: 1_048_588."""

    log_retention_ms: int
    """Age at which closed segments are removed, -1 for never. Default: 604_800_000."""

    log_retention_bytes: int
    """Size of a partition above which its oldest closed segments are removed, -1 for no limit.
    Default: -1.
    """

    flush_interval_ms: int | None
    """Time between two fsyncs; None leaves them to the operating system. In both cases acknowledged
    records survive the death of the broker; only an fsync makes them survive that of the machine.
    Default: None.
    """

    fetch_max_bytes: int
    """Maximum bytes of records in one response, which limits the memory for a client that does not
    read. Default: 16_777_216.
    """

    max_connections: int
    """Maximum number of connections; further ones are closed at once. Default: 10_000."""

    max_unauthenticated_connections: int
    """Maximum number of connections that have yet to authenticate, if clients must; beyond it the
    oldest of them is closed. Default: 1_000.
    """

    connections_max_idle_ms: int
    """A connection without requests for this long is closed. Default: 600_000."""

    offsets_topic_num_partitions: int
    """Partitions of `__consumer_offsets`; never change it. Default: 50."""

    offsets_topic_segment_bytes: int
    """Small, so that compaction keeps restarts quick. Default: 4_194_304."""

    transaction_state_log_num_partitions: int
    """Partitions of `__transaction_state`; never change it. Default: 50."""

    transaction_version: int
    """Version of transactions announced to clients. With 2, each transaction has its own epoch, and
    a write adds its partition to the transaction (KIP-890); 0 and 1 are the earlier protocol.
    Default: 2.
    """

    transaction_max_timeout_ms: int
    """Longest transaction timeout. Default: 900_000."""

    transactional_id_expiration_ms: int
    """How long a transactional producer may be silent before its state is removed. Default:
    604_800_000.
    """

    group_min_session_timeout_ms: int
    """Shortest session timeout that members may request; with Kafka's 6000, each test of a crash
    would wait that long. Default: 1_000.
    """

    group_max_session_timeout_ms: int
    """Longest session timeout that members may request. Default: 1_800_000."""

    group_initial_rebalance_delay_ms: int
    """How long a new group waits for more members (KIP-134). Kafka's default of 3000 suits
    production; here it would only make tests slow. Default: 0.
    """

    group_max_size: int
    """Maximum number of members of a group. Default: 2_147_483_647."""

    protocols: tuple[str, ...]
    """The served group protocols; "draft" is for study, see docs/internals/draft.md. Default:
    ("classic", "consumer").
    """

    draft_assignor: str
    """The assignor of draft groups: "range" or "roundrobin". Default: "range"."""

    offset_metadata_max_bytes: int
    """Longest metadata of a committed offset. Default: 4_096."""

    group_consumer_session_timeout_ms: int
    """How long a member of a consumer group may be silent; members cannot choose it (KIP-848).
    Default: 45_000.
    """

    group_consumer_min_session_timeout_ms: int
    """Shortest session timeout that a group's settings may have; with Kafka's 45000, each test of a
    crash would wait that long. Default: 1_000.
    """

    group_consumer_max_session_timeout_ms: int
    """Longest session timeout that a group's settings may have. Default: 60_000."""

    group_consumer_heartbeat_interval_ms: int
    """Interval between a member's heartbeats. With Kafka's 5000, a test would wait that long for
    each partition that moves. Default: 1_000.
    """

    group_consumer_min_heartbeat_interval_ms: int
    """Shortest interval that a group's settings may have. Default: 100."""

    group_consumer_max_heartbeat_interval_ms: int
    """Longest interval that a group's settings may have. Default: 15_000."""

    group_consumer_max_size: int
    """Maximum number of members of a consumer group. Default: 2_147_483_647."""

    group_consumer_assignors: tuple[str, ...]
    """The assignors that members may ask for, "uniform" and "range"; the first one is the default.
    Default: ("uniform", "range").
    """

    group_consumer_rack_aware: bool
    """Whether these assignors consider racks; those of recent Kafka do not. Default: False."""

    group_consumer_assignment_interval_ms: int
    """Minimum time between two target assignments of a group (KIP-1263). Kafka's 1000 would delay
    each new member of a test. Default: 0.
    """

    group_consumer_min_assignment_interval_ms: int
    """Shortest such time that a group's settings may have. Default: 0."""

    group_consumer_max_assignment_interval_ms: int
    """Longest such time that a group's settings may have. Default: 15_000."""

    group_consumer_client_assignment_timeout_ms: int
    """How long a member may take to compute its group's assignment; after that the broker computes
    it. Kafka never asks a member. Default: 10_000.
    """

    group_consumer_regex_refresh_interval_ms: int
    """Age at which the topics of a regular expression are resolved again, even if no topic was
    created. Default: 600_000.
    """

    group_consumer_migration_policy: str
    """Conversions of a group that has members: "upgrade" to the consumer protocol, "downgrade" back
    to the classic one, "bidirectional" or "disabled". Default: "bidirectional".
    """

    offsets_retention_ms: int
    """How long unused offsets are kept (KIP-211). Default: 604_800_000."""

    offsets_retention_check_interval_ms: int
    """Interval between checks for expired offsets. Default: 600_000."""

    security: Security | None
    """TLS and SASL (`kohort.broker.Security`); None: neither. Default: None."""
