"""Settings of a group member, by Kafka's names."""

from __future__ import annotations

from msgspec import Struct

FIRST_HEARTBEAT_PART = 16
"""The `first_heartbeat_part` of kohort's own members."""


class MemberConfig(Struct, frozen=True, kw_only=True):
    """How a member behaves; the defaults are those of Kafka's Java consumer.

    Attributes:
        group_id: The group to join.
        group_instance_id: Id of a static member (KIP-345), None for a dynamic one.
        session_timeout_ms: Silence after which the coordinator removes the member.
        heartbeat_interval_ms: Time between heartbeats.
        first_heartbeat_part: The first heartbeat after a rebalance comes after this part of the
            interval; under KIP-848 each wait is then twice as long as the previous one, up to the
            interval. More changes often follow at once: a second rebalance of cooperative members
            (KIP-429), or partitions that another member released (KIP-848). A member learns of
            them only with its next heartbeat.
        wall_clock_ahead_ms: How far the host's wall clock is ahead of the times passed to the
            member. Members of a KIP-848 group that have it send heartbeats at the same moments;
            None: each at its own moments.
        max_poll_interval_ms: Longest time between polls; also the time to join again in a
            rebalance (KIP-62).
        retry_backoff_ms: First wait before a request is tried again.
        retry_backoff_max_ms: Longest such wait; each is twice the previous one (KIP-580).
        jitter: Factor on those waits, drawn once for each member, so that members that lost the
            same coordinator do not retry in step.
        rack_id: The rack the member runs in (KIP-881), None when unknown.
        server_assignor: Server-side assignor to request (KIP-848); None: the coordinator
            chooses.
    """

    group_id: str
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    first_heartbeat_part: int = 1
    wall_clock_ahead_ms: int | None = None
    max_poll_interval_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    jitter: float = 1.0
    rack_id: str | None = None
    server_assignor: str | None = None

    @property
    def until_first_heartbeat_ms(self) -> int:
        """Return the time from the start of a classic generation to its first heartbeat."""
        return self.heartbeat_interval_ms // self.first_heartbeat_part

    def backoff_ms(self, attempt: int) -> int:
        """Return the wait after the `attempt`-th consecutive failure, counted from 1."""
        doubled = self.retry_backoff_ms * 2 ** min(attempt - 1, 16)
        return int(min(doubled, self.retry_backoff_max_ms) * self.jitter)
