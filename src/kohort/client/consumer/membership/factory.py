"""Makes the member of a group: its machine by `group.protocol`, and what runs the machine.

Only the protocol in use is imported, so that a member restarts faster.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable

from kohort.client.config.definitions import ConsumerConfig
from kohort.client.consumer.membership.shell import Membership
from kohort.client.net.backoff import CHANCE, JITTER
from kohort.client.net.cluster import Cluster
from kohort.client.net.coordinator import Coordinator
from kohort.client.net.transport import now_ms
from kohort.group.member.config import FIRST_HEARTBEAT_PART, MemberConfig

# The members of a classic group get their assignments at the same time, so their heartbeats stay in
# step. When one is killed, its session ends one session timeout after a heartbeat of all members;
# they beat again this long after that end. A member that beats too early learns of it one interval
# later, and all others wait for it.
_AFTER_SESSION_MS = 40


def make_membership(
    cluster: Cluster,
    coordinator: Coordinator,
    config: ConsumerConfig,
    on_change: Callable[[], None],
) -> Membership:
    """Make a member for the group protocol in the settings; see `Membership`."""
    if config.group_protocol == "consumer":
        from kohort.client.consumer.membership.consumer import ConsumerMembership, new_member_id
        from kohort.group.member.consumer.machine import ConsumerMember

        assignors = config.local_assignors()
        by_broker = ConsumerMember(member_config(config), new_member_id(), assignors=assignors)
        return ConsumerMembership(by_broker, cluster, coordinator, config, on_change)
    if config.group_protocol == "draft":
        from kohort.group.member.draft.machine import DraftMember

        draft = DraftMember(member_config(config), socket.gethostname())
        return Membership(draft, cluster, coordinator, config, on_change)
    from kohort.client.consumer.membership.classic import ClassicMembership
    from kohort.group.member.classic.machine import ClassicMember

    classic = ClassicMember(member_config(config), config.assignors())
    return ClassicMembership(classic, cluster, coordinator, config, on_change)


def member_config(config: ConsumerConfig) -> MemberConfig:
    """Return the settings of a group member from a consumer's settings."""
    assert config.group_id is not None
    return MemberConfig(
        group_id=config.group_id,
        group_instance_id=config.group_instance_id,
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=_heartbeat_interval_ms(config),
        first_heartbeat_part=FIRST_HEARTBEAT_PART,
        wall_clock_ahead_ms=_wall_clock_ahead_ms(),
        max_poll_interval_ms=config.max_poll_interval_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
        jitter=CHANCE.uniform(1 - JITTER, 1 + JITTER),
        rack_id=config.client_rack,
        server_assignor=config.group_remote_assignor,
    )


def _heartbeat_interval_ms(config: ConsumerConfig) -> int:
    """Return the heartbeat interval that aligns the requested number of beats with a session."""
    beats = math.ceil(config.session_timeout_ms / config.heartbeat_interval_ms)
    after_ms = min(_AFTER_SESSION_MS, config.heartbeat_interval_ms // 10)
    return (config.session_timeout_ms + after_ms) // beats


def _wall_clock_ahead_ms() -> int | None:
    return int(time.time() * 1000) - now_ms()
