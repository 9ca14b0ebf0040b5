"""Settings of the coordinator, by Kafka's names."""

from __future__ import annotations

from msgspec import Struct


class CoordinatorConfig(Struct, frozen=True, kw_only=True):
    """Limits and times of group coordination; the defaults are Kafka's.

    Attributes:
        group_min_session_timeout_ms: Shortest session timeout that a member may request.
        group_max_session_timeout_ms: Longest one.
        group_initial_rebalance_delay_ms: How long the first rebalance of an empty group waits for
            more members (KIP-134).
        group_max_size: Most members of one group (KIP-389).
        group_max_pending_members: Most ids issued and not used yet (C15); Kafka has no
            limit.
        group_max_bytes: Most bytes of a classic group's members in its log record: ids, lists of
            assignors, subscriptions. Kafka only limits the record, and exceeding that limit
            fails the whole group.
        group_member_max_bytes: Most bytes of one member; in a consumer group, of its subscription.
        offsets_retention_ms: How long unused positions are kept (KIP-211).
        offsets_retention_check_interval_ms: How often the coordinator checks for expired positions.
        offset_metadata_max_bytes: Longest metadata of a stored position, in bytes of UTF-8.
        new_member_join_timeout_ms: How long the first join of a member may be parked; Kafka has no
            setting for it (C17).
        group_consumer_session_timeout_ms: How long a member of a consumer group may be silent.
        group_consumer_min_session_timeout_ms: Shortest such time that a group may set for itself.
        group_consumer_max_session_timeout_ms: Longest one.
        group_consumer_heartbeat_interval_ms: How often a member has to send a heartbeat.
        group_consumer_min_heartbeat_interval_ms: Shortest interval that a group may set.
        group_consumer_max_heartbeat_interval_ms: Longest one.
        group_consumer_max_size: Most members of one consumer group.
        group_consumer_assignors: Names of the assignors that members may request; the first is the
            default.
        group_consumer_rack_aware: Whether these assignors, among equally even results with equally
            few moves, choose one with the most partitions in the racks of their members; Kafka's
            no longer consider racks (KAFKA-16694).
        group_consumer_assignment_interval_ms: Least time between two target assignments of one
            group, 0 for none (KIP-1263).
        group_consumer_min_assignment_interval_ms: Shortest such time that a group may set.
        group_consumer_max_assignment_interval_ms: Longest one.
        group_consumer_client_assignment_timeout_ms: How long a member may take to compute its
            group's assignment, if its rebalance timeout is not shorter (K61); Kafka never asks
            members.
        group_consumer_regex_refresh_interval_ms: Age at which the topics of a regular expression
            are looked up again, even if no topic was created.
        regex_min_refresh_interval_ms: Least time between two such look-ups for one group; Kafka has
            no setting for it (K50).
        group_consumer_migration_policy: Which conversions a group with members allows: "upgrade"
            from classic to consumer group, "downgrade" back, "bidirectional" or "disabled" (K40).
        draft_assignor: The assignor of draft groups: "range" or "roundrobin".
    """

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    group_max_pending_members: int = 10_000
    group_max_bytes: int = 6 * 1024 * 1024
    group_member_max_bytes: int = 1024 * 1024
    offsets_retention_ms: int = 7 * 24 * 3_600 * 1_000
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
    new_member_join_timeout_ms: int = 300_000
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_rack_aware: bool = False
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_max_assignment_interval_ms: int = 15_000
    group_consumer_client_assignment_timeout_ms: int = 10_000
    group_consumer_regex_refresh_interval_ms: int = 600_000
    regex_min_refresh_interval_ms: int = 10_000
    group_consumer_migration_policy: str = "bidirectional"
    draft_assignor: str = "range"
