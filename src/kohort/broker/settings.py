"""Types of keyword settings, written by `python tools/setting_types.py`."""

from __future__ import annotations

from typing import TypedDict

from kohort.broker.net.security import Security


class BrokerSettings(TypedDict, total=False):
    """Settings of `EmbeddedBroker`."""

    host: str
    """Address to listen on; loopback only, unless `allow_remote` says otherwise. Default:
    "127.0.0.1".
    """

    port: int
    """Port to listen on; 0 takes a free one. Default: 0."""

    allow_remote: bool
    """Permit an address that other machines reach although no login is needed; see `security`.
    Default: False.
    """

    advertised: str | None
    """`HOST[:PORT]` that clients are told to connect to; an address of IPv6 is in brackets. By
    default what is listened on; where that is every address of the machine, the machine's full name
    or the address that it sends from. Default: None.
    """

    broker_rack: str
    """Where this broker is, empty when that is not said (KIP-36, KIP-881). Default: empty."""

    auto_create_topics: bool
    """Make a topic when a client that permits it asks for an unknown one. Default: True."""

    num_partitions: int
    """Partitions of a topic made without a number. Default: 1."""

    log_segment_bytes: int
    """A closed segment may be removed or compacted, an open one not. Default: 134_217_728."""

    message_max_bytes: int
    """Largest record batch. Default: 1_048_588."""

    log_retention_ms: int
    """Age at which closed segments go, -1 for never. Default: 604_800_000."""

    log_retention_bytes: int
    """Size of a partition above which its oldest closed segments go. Default: -1."""

    flush_interval_ms: int | None
    """Time between two fsyncs; None leaves it to the operating system. Whatever was acknowledged
    survives the broker's death either way; only after an fsync does it survive the machine's.
    Default: None.
    """

    fetch_max_bytes: int
    """Most bytes of records in one response; bounds what a client that does not read can cost.
    Default: 16_777_216.
    """

    max_connections: int
    """Connections beyond this are closed at once. Default: 10_000."""

    max_unauthenticated_connections: int
    """Where clients must authenticate: connections that have not yet; beyond this the oldest of
    them is closed. Default: 1_000.
    """

    connections_max_idle_ms: int
    """A connection that sends nothing for so long is closed. Default: 600_000."""

    offsets_topic_num_partitions: int
    """Partitions of `__consumer_offsets`; never change it. Default: 50."""

    offsets_topic_segment_bytes: int
    """Small, so that compaction keeps restarts quick. Default: 4_194_304."""

    transaction_state_log_num_partitions: int
    """Partitions of `__transaction_state`; never change it. Default: 50."""

    transaction_version: int
    """Version of transactions that clients are told of: with 2 each has an epoch of its own, and
    writing to a partition makes it take part (KIP-890); 0 or 1 for how it was before. Default: 2.
    """

    transaction_max_timeout_ms: int
    """Longest time that a transaction may take. Default: 900_000."""

    transactional_id_expiration_ms: int
    """How long a transactional producer may be silent before it is forgotten. Default: 604_800_000.
    """

    group_min_session_timeout_ms: int
    """Shortest session timeout a member may ask for; Kafka's 6000 would make every test of a crash
    wait so long. Default: 1_000.
    """

    group_max_session_timeout_ms: int
    """Longest one. Default: 1_800_000."""

    group_initial_rebalance_delay_ms: int
    """How long a new group waits for more members (KIP-134). Kafka's default of 3000 suits
    production; here it would only make tests slow. Default: 0.
    """

    group_max_size: int
    """Most members of one group. Default: 2_147_483_647."""

    protocols: tuple[str, ...]
    """Group protocols that are served; "draft" is for study, see docs/draft.md. Default:
    ("classic", "consumer").
    """

    draft_assignor: str
    """What shares the partitions of draft groups out: "range" or "roundrobin". Default: "range"."""

    offset_metadata_max_bytes: int
    """Longest text beside a stored position. Default: 4_096."""

    group_consumer_session_timeout_ms: int
    """How long a member of a consumer group may be silent; it has no say in that itself (KIP-848).
    Default: 45_000.
    """

    group_consumer_min_session_timeout_ms: int
    """Shortest such time that a group may set for itself; Kafka's 45000 would make every test of a
    crash wait so long. Default: 1_000.
    """

    group_consumer_max_session_timeout_ms: int
    """Longest one. Default: 60_000."""

    group_consumer_heartbeat_interval_ms: int
    """How often it sends a heartbeat. With Kafka's 5000 a test would wait that long for each
    partition that moves. Default: 1_000.
    """

    group_consumer_min_heartbeat_interval_ms: int
    """Shortest interval that a group may set. Default: 100."""

    group_consumer_max_heartbeat_interval_ms: int
    """Longest one. Default: 15_000."""

    group_consumer_max_size: int
    """Most members of one consumer group. Default: 2_147_483_647."""

    group_consumer_assignors: tuple[str, ...]
    """The assignors that members may ask for, "uniform" and "range"; the first one is the default.
    Default: ("uniform", "range").
    """

    group_consumer_rack_aware: bool
    """Whether they look at racks too; Kafka's do not any more. Default: False."""

    group_consumer_assignment_interval_ms: int
    """Least time between two target assignments of one group (KIP-1263). Kafka's 1000 would hold
    each new member of a test up. Default: 0.
    """

    group_consumer_min_assignment_interval_ms: int
    """Shortest such time that a group may set. Default: 0."""

    group_consumer_max_assignment_interval_ms: int
    """Longest one. Default: 15_000."""

    group_consumer_client_assignment_timeout_ms: int
    """How long a member may take to make its group's assignment; then the broker makes it. Kafka
    asks no member. Default: 10_000.
    """

    group_consumer_regex_refresh_interval_ms: int
    """Age at which what a regular expression stands for is looked up again, though no topic was
    created. Default: 600_000.
    """

    group_consumer_migration_policy: str
    """Which way a group may go while it has members: "upgrade" to the consumer protocol,
    "downgrade" back to the classic one, "bidirectional" or "disabled". Default: "bidirectional".
    """

    offsets_retention_ms: int
    """How long unused offsets are kept (KIP-211). Default: 604_800_000."""

    offsets_retention_check_interval_ms: int
    """How often older ones are looked for. Default: 600_000."""

    security: Security | None
    """TLS and SASL (`kohort.broker.Security`); None: neither. Default: None."""
