"""Settings of a partition's log."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class LogConfig(Struct, frozen=True, kw_only=True):
    """Settings of a partition's log, by Kafka's names.

    Attributes:
        segment_bytes: A segment is closed if the next batch would make it larger.
        max_message_bytes: Largest batch that is accepted.
        log_append_time: `message.timestamp.type=LogAppendTime`: the broker sets the timestamps.
        compact: `cleanup.policy` contains `compact`; each record must have a key.
        delete: `cleanup.policy` contains `delete`; the two retention settings apply.
        retention_ms: Age at which segments may be deleted, -1 for never.
        retention_bytes: Size above which the oldest segments may be deleted, -1 for no limit.
        delete_retention_ms: How long compaction keeps tombstones, so that readers see them.
        timestamp_after_max_ms: How far a record's timestamp may be ahead of the broker's clock.
        min_cleanable_dirty_ratio: Share of a log that must be dirty before it is compacted.
    """

    segment_bytes: int = 128 * 1024 * 1024
    max_message_bytes: int = 1_048_588
    log_append_time: bool = False
    compact: bool = False
    delete: bool = True
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    delete_retention_ms: int = 24 * 3600 * 1000
    min_cleanable_dirty_ratio: float = 0.5
    timestamp_after_max_ms: int = 3600 * 1000


def log_config(defaults: LogConfig, configs: Mapping[str, str]) -> LogConfig:
    """Return the settings of a topic's logs: the topic's own, and the broker's defaults.

    Raises:
        ValueError: A setting is not a number, or the cleanup policy is unknown.
    """
    policy = _policy(configs["cleanup.policy"]) if "cleanup.policy" in configs else None
    time_type = configs.get("message.timestamp.type")
    ratio = configs.get("min.cleanable.dirty.ratio", defaults.min_cleanable_dirty_ratio)
    return LogConfig(
        segment_bytes=int(configs.get("segment.bytes", defaults.segment_bytes)),
        max_message_bytes=int(configs.get("max.message.bytes", defaults.max_message_bytes)),
        log_append_time=(
            time_type == "LogAppendTime" if time_type is not None else defaults.log_append_time
        ),
        compact=defaults.compact if policy is None else "compact" in policy,
        delete=defaults.delete if policy is None else "delete" in policy,
        retention_ms=int(configs.get("retention.ms", defaults.retention_ms)),
        retention_bytes=int(configs.get("retention.bytes", defaults.retention_bytes)),
        delete_retention_ms=int(configs.get("delete.retention.ms", defaults.delete_retention_ms)),
        min_cleanable_dirty_ratio=float(ratio),
        timestamp_after_max_ms=int(
            configs.get("message.timestamp.after.max.ms", defaults.timestamp_after_max_ms)
        ),
    )


def _policy(value: str) -> set[str]:
    policy = {each.strip() for each in value.split(",") if each.strip()}
    if not policy <= {"compact", "delete"}:
        raise ValueError(f"cleanup.policy={value!r} is not compact, delete or both")
    return policy
