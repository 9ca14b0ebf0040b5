"""How the clients of a region reach the brokers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, cast

from kohort.client.config.definitions import (
    AdminConfig,
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    make,
)
from kohort.errors import ConfigError
from kohort.region.machines.operator_session import MERGE_MAX_MS

if TYPE_CHECKING:
    from kohort.client.config.settings import AdminSettings, ConsumerSettings, ProducerSettings
    from kohort.region.machines.records import RegionSettings

ClientSettings: TypeAlias = Mapping[str, Any]
"""Kafka's settings in snake_case, as `kohort.Consumer` takes them."""

# No client of a region creates a topic by requesting it: a broker would create the region's own
# topics without compaction, and recreate a deleted source topic, which would seem to be empty.
NO_CREATION = {"allow_auto_create_topics": False}
# Settings of every client: addresses, security, timeouts. Fetch settings do not apply to the
# clients that read and write the region's own topics.
_SHARED = set(ClientConfig.__struct_fields__) - {"client_id", "group_id"}
_REFUSED_BY_PRODUCERS = {"default_api_timeout_ms"}


# The largest value in Kafka's protocol.
_LONGEST_MS = 2**31 - 1
# A poll holds a revocation until a checkpoint is complete, and again after a reset.
_POLLS = 3
# How long a client that has not reached any broker yet keeps trying.
_REACH_S = 60.0


class Patience:
    """Tolerates for a while that no broker has been reached yet, which a poll raises at once."""

    def __init__(self) -> None:
        self._end = 0.0

    def is_left(self) -> bool:
        """Whether to retry; time counts from the first call."""
        now = time.monotonic()
        self._end = self._end or now + _REACH_S
        return now < self._end


def member_config(settings: ClientSettings, region: RegionSettings) -> ConsumerConfig:
    """Return the settings of a region's members, converted from text if needed.

    Args:
        settings: The application's settings.
        region: The region's settings.

    Raises:
        ConfigError: A setting is unknown or has an invalid value.
    """
    return make(ConsumerConfig, {**settings, "group_id": region.group_id})


def poll_interval_ms(settings: ClientSettings, region: RegionSettings) -> int:
    """Return the `max_poll_interval_ms` of a region's members, in milliseconds.

    Args:
        settings: The application's settings.
        region: The region's settings.

    Raises:
        ConfigError: The application's value is too short: the group would remove a member while it
            is handing over partitions.
    """
    least = min(_POLLS * max(region.drain_timeout_ms, region.reset_timeout_ms), _LONGEST_MS)
    given = member_config(settings, region).max_poll_interval_ms
    if "max_poll_interval_ms" in settings and given < least:
        raise ConfigError(
            f"max_poll_interval_ms is {given} and must be at least {least}, three times the longer "
            "of drain_timeout_ms and reset_timeout_ms: otherwise the group removes a worker that "
            "is handing its partitions over"
        )
    return max(given, least)


def merge_timeout_ms(settings: ClientSettings, region: RegionSettings) -> int:
    """Return how long an operator in a reset may wait for the merged checkpoint, in milliseconds.

    The formula is from the documentation of IBM Streams.

    Args:
        settings: The application's settings.
        region: The region's settings.

    Raises:
        ConfigError: The application's `max_poll_interval_ms` is too short.
    """
    polls = poll_interval_ms(settings, region)
    return min(region.reset_timeout_ms // 2, polls // 2, MERGE_MAX_MS)


def consumer_settings(
    settings: ClientSettings, **own: Unpack[ConsumerSettings]
) -> ConsumerSettings:
    """Return the settings for a consumer of the region's own topics, with `own` added."""
    known = ConsumerConfig.__struct_fields__
    kept = _kept(settings, _SHARED.intersection(known))
    return cast("ConsumerSettings", {**kept, **NO_CREATION, **own})


def producer_settings(
    settings: ClientSettings, **own: Unpack[ProducerSettings]
) -> ProducerSettings:
    """Return the settings for a producer, with `own` added."""
    known = set(ProducerConfig.__struct_fields__) - _REFUSED_BY_PRODUCERS
    kept = _kept(settings, _SHARED.intersection(known))
    return cast("ProducerSettings", {**kept, **NO_CREATION, **own})


def admin_settings(settings: ClientSettings) -> AdminSettings:
    """Return the settings for an admin client."""
    known = AdminConfig.__struct_fields__
    return cast("AdminSettings", _kept(settings, _SHARED.intersection(known)))


def _kept(settings: ClientSettings, names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in names}
