"""The record of a group's own settings in the `__consumer_offsets` topic.

Kafka keeps them in the log of its controllers, which the embedded broker does not have. The version
of the key is far above those that Kafka uses, so Kafka skips it.
"""

from __future__ import annotations

from kohort.wire.codec.schema import Message, String, Struct, message


@message(versions=(30002, 30002))
class GroupConfigKey(Message, frozen=True, kw_only=True):
    """Identifies a group."""

    group: String


class GroupConfigEntry(Struct, frozen=True, kw_only=True):
    """One setting, by Kafka's name."""

    name: String
    value: String


@message(versions=(0, 0))
class GroupConfigValue(Message, frozen=True, kw_only=True):
    """The group's own settings."""

    configs: tuple[GroupConfigEntry, ...]


KIND: tuple[type[GroupConfigKey], type[GroupConfigValue]] = (GroupConfigKey, GroupConfigValue)
