"""How both brokers are set up for the dialogues: low times, so that they can elapse for real."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

_KAFKA = {
    "group.initial.rebalance.delay.ms": "1200",
    "group.min.session.timeout.ms": "500",
    "group.max.session.timeout.ms": "60000",
    "group.max.size": "3",
    "offset.metadata.max.bytes": "32",
    "group.consumer.max.size": "3",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    # a target assignment is there with the answer to the heartbeat that asked for it
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
}

_OURS: dict[str, Any] = {
    "group_initial_rebalance_delay_ms": 1_200,
    "group_min_session_timeout_ms": 500,
    "group_max_session_timeout_ms": 60_000,
    "group_max_size": 3,
    "offset_metadata_max_bytes": 32,
    "offsets_topic_num_partitions": 5,
    "group_consumer_max_size": 3,
    "group_consumer_min_session_timeout_ms": 6_000,
    "group_consumer_session_timeout_ms": 6_000,
    "group_consumer_min_heartbeat_interval_ms": 200,
    "group_consumer_heartbeat_interval_ms": 200,
    "group_consumer_assignment_interval_ms": 0,
}

# Kafka's cleaner also removes a group that has no member yet, only ids given out: where it runs
# often it disturbs everybody who joins. So these families have brokers of their own.
_OFTEN_CLEANED = {"offsets.retention.check.interval.ms": "500"}
_OURS_OFTEN_CLEANED: dict[str, object] = {"offsets_retention_check_interval_ms": 500}

# Members wait for each other's restart, and nobody's session may end meanwhile. The rack is for
# members that say where they are; a broker that does not say where it is has no near ones.
_RESTARTED = {"group.consumer.session.timeout.ms": "45000", "broker.rack": "near"}
_OURS_RESTARTED: dict[str, object] = {
    "group_consumer_session_timeout_ms": 45_000,
    "broker_rack": "near",
}


class Kind(StrEnum):
    """What a family needs of its broker."""

    USUAL = "usual"
    CLEANED = "cleaned"
    RESTARTED = "restarted"


_FAMILIES = {
    "expiry": Kind.CLEANED,
    "restart": Kind.RESTARTED,
    "restart_of_logs": Kind.RESTARTED,
    "log_limits": Kind.RESTARTED,
    "racks": Kind.RESTARTED,
}
_OF_KAFKA: dict[Kind, dict[str, str]] = {
    Kind.USUAL: {},
    Kind.CLEANED: _OFTEN_CLEANED,
    Kind.RESTARTED: _RESTARTED,
}
_OF_OURS: dict[Kind, dict[str, object]] = {
    Kind.USUAL: {},
    Kind.CLEANED: _OURS_OFTEN_CLEANED,
    Kind.RESTARTED: _OURS_RESTARTED,
}


def kind_of(family: str) -> Kind:
    """The kind of broker that a family runs on."""
    return _FAMILIES.get(family, Kind.USUAL)


def kafka_settings(kind: Kind = Kind.USUAL) -> dict[str, str]:
    """The settings of a live Kafka, by Kafka's names."""
    return _KAFKA | _OF_KAFKA[kind]


def our_settings(kind: Kind = Kind.USUAL) -> dict[str, Any]:
    """The settings of our broker."""
    return _OURS | _OF_OURS[kind]
