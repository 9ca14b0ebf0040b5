"""How brokers and consumers are set up for member dialogues: low times, which elapse for real."""

from __future__ import annotations

from typing import Any

KAFKA: dict[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.max.session.timeout.ms": "60000",
    "group.max.size": "3",
    "group.consumer.max.size": "3",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "1500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    # a target assignment is there with the answer to the heartbeat that asked for it
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
}

OURS: dict[str, Any] = {
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 500,
    "group_max_session_timeout_ms": 60_000,
    "group_max_size": 3,
    "offsets_topic_num_partitions": 5,
    "group_consumer_max_size": 3,
    "group_consumer_min_session_timeout_ms": 1_000,
    "group_consumer_session_timeout_ms": 1_500,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_consumer_heartbeat_interval_ms": 200,
    "group_consumer_assignment_interval_ms": 0,
}

# Java's `unsubscribe` asks for metadata first where they are due just then, and then does not say
# that it leaves: where somebody unsubscribes, a dialogue lets metadata be older.
CLIENTS: dict[str, object] = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "metadata.max.age.ms": 300,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
}
