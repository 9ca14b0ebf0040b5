"""The allowed conversions of a group with members: `group.consumer.migration.policy`."""

from __future__ import annotations

from kohort.group.coordinator.config import CoordinatorConfig

BIDIRECTIONAL, UPGRADE, DOWNGRADE, DISABLED = "bidirectional", "upgrade", "downgrade", "disabled"
POLICIES = (BIDIRECTIONAL, UPGRADE, DOWNGRADE, DISABLED)


def allows_upgrade(config: CoordinatorConfig) -> bool:
    """Return whether a classic group may become a consumer group."""
    return config.group_consumer_migration_policy in (BIDIRECTIONAL, UPGRADE)


def allows_downgrade(config: CoordinatorConfig) -> bool:
    """Return whether a consumer group may become a classic group."""
    return config.group_consumer_migration_policy in (BIDIRECTIONAL, DOWNGRADE)
