"""How the clients of a region reach the brokers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, cast

from kohort.client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig, make
from kohort.errors import ConfigError
from kohort.region.machines.operator_session import MERGE_MAX_MS

if TYPE_CHECKING:
    from kohort.client.settings import AdminSettings, ConsumerSettings, ProducerSettings
    from kohort.region.machines.records import RegionSettings

ClientSettings: TypeAlias = Mapping[str, Any]
"""Kafka's settings in snake_case, as `kohort.Consumer` takes them."""

# No client of a region makes a topic by asking for it: a broker would make the region's own topics
# without compaction.
_NO_CREATION = {"allow_auto_create_topics": False}
# Those that every client has: addresses, security, time-outs. How data is fetched is no matter of
# the clients that read and write the region's own topics.
_SHARED = set(ClientConfig.__struct_fields__) - {"client_id", "group_id"}
_REFUSED_BY_PRODUCERS = {"default_api_timeout_ms"}


# What fits into Kafka's protocol.
_LONGEST_MS = 2**31 - 1
# A poll holds a revocation until a checkpoint is complete, and that may be repeated after a reset.
_POLLS = 3
# So long a client goes on trying that has not reached a broker yet.
_REACH_S = 60.0


class Patience:
    """Bears for a while that a client has reached no broker yet, which a poll raises at once."""

    def __init__(self) -> None:
        self._end = 0.0

    def is_left(self) -> bool:
        """Whether to try again; the time begins with the first call."""
        now = time.monotonic()
        self._end = self._end or now + _REACH_S
        return now < self._end


def member_config(settings: ClientSettings, region: RegionSettings) -> ConsumerConfig:
    """Return the settings of a region's members with their types: as given they may be texts.

    Args:
        settings: Those of the application.
        region: What the region agrees on.

    Raises:
        ConfigError: One is unknown, or does not fit.
    """
    return make(ConsumerConfig, {**settings, "group_id": region.group_id})


def poll_interval_ms(settings: ClientSettings, region: RegionSettings) -> int:
    """Return the `max_poll_interval_ms` of a region's members, in milliseconds.

    Args:
        settings: Those of the application.
        region: What the region agrees on.

    Raises:
        ConfigError: The application's is too short: the group would throw out a member that hands
            over.
    """
    least = min(_POLLS * max(region.drain_timeout_ms, region.reset_timeout_ms), _LONGEST_MS)
    given = member_config(settings, region).max_poll_interval_ms
    if "max_poll_interval_ms" in settings and given < least:
        raise ConfigError(
            f"max_poll_interval_ms is {given} and must be at least {least}, three times the longer "
            "of drain_timeout_ms and reset_timeout_ms: else the group throws out a worker that "
            "hands its partitions over"
        )
    return max(given, least)


def merge_timeout_ms(settings: ClientSettings, region: RegionSettings) -> int:
    """Return how long an operator may wait in a reset for the merged checkpoint, in milliseconds.

    The document of IBM Streams has the formula.

    Args:
        settings: Those of the application.
        region: What the region agrees on.

    Raises:
        ConfigError: The application's `max_poll_interval_ms` is too short.
    """
    polls = poll_interval_ms(settings, region)
    return min(region.reset_timeout_ms // 2, polls // 2, MERGE_MAX_MS)


def consumer_settings(
    settings: ClientSettings, **own: Unpack[ConsumerSettings]
) -> ConsumerSettings:
    """Return what a consumer of the region's own topics takes of the settings, and its own."""
    known = ConsumerConfig.__struct_fields__
    kept = _kept(settings, _SHARED.intersection(known))
    return cast("ConsumerSettings", {**kept, **_NO_CREATION, **own})


def producer_settings(
    settings: ClientSettings, **own: Unpack[ProducerSettings]
) -> ProducerSettings:
    """Return what a producer takes of the settings, and its own."""
    known = set(ProducerConfig.__struct_fields__) - _REFUSED_BY_PRODUCERS
    kept = _kept(settings, _SHARED.intersection(known))
    return cast("ProducerSettings", {**kept, **_NO_CREATION, **own})


def admin_settings(settings: ClientSettings) -> AdminSettings:
    """Return what an admin client takes of the settings."""
    known = AdminConfig.__struct_fields__
    return cast("AdminSettings", _kept(settings, _SHARED.intersection(known)))


def _kept(settings: ClientSettings, names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in names}
