"""When a stored position is too old to keep (C60, KIP-211)."""

from __future__ import annotations

from kohort.group.coordinator.offsets.fold import StoredOffset


def is_expired(
    stored: StoredOffset, wall_ms: int, retention_ms: int, counted_from_ms: int | None = None
) -> bool:
    """Whether a position may go.

    Args:
        stored: The position.
        wall_ms: Time of day, in milliseconds since 1970.
        retention_ms: `offsets.retention.minutes`, in milliseconds.
        counted_from_ms: Time of day from which to count; None: when it was committed.

    Returns:
        Whether its time is over. An old client may have asked for another time; that counts.
    """
    if stored.expire_timestamp >= 0:
        return wall_ms >= stored.expire_timestamp
    since_ms = stored.commit_timestamp if counted_from_ms is None else counted_from_ms
    return wall_ms - since_ms >= retention_ms
