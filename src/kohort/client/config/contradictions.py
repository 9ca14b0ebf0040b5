"""Settings that contradict each other, or have no effect in combination with others.

An explicit setting overrides a conflicting default where Java's clients do the same; two explicit
settings that contradict each other are refused. Otherwise the client would silently follow one of
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kohort.errors import ConfigError

# Settings that the coordinator decides with KIP-848, and where to set them instead.
_CLASSIC_ONLY = {
    "session_timeout_ms": "the group's consumer.session.timeout.ms at the broker",
    "heartbeat_interval_ms": "the group's consumer.heartbeat.interval.ms at the broker",
    "partition_assignment_strategy": "group.remote.assignor, or group.local.assignors",
}
_NOT_IN_DRAFT = ("partition_assignment_strategy", "group_instance_id", "client_rack")
# Maximum requests in flight with which a broker still detects duplicates (KIP-98).
_IN_FLIGHT_MAX = 5
# The initial and the longest pause of each kind.
_PAUSES = {
    "retry_backoff_ms": "retry_backoff_max_ms",
    "reconnect_backoff_ms": "reconnect_backoff_max_ms",
}


def dotted(name: str) -> str:
    """Return Kafka's spelling of a setting."""
    return name.replace("_", ".")


def settled(defaults: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    """Return consistent settings: the given ones, and defaults adjusted to them.

    Args:
        defaults: The client's defaults, by name.
        given: The explicit settings, with the right types.

    Raises:
        ConfigError: Settings contradict each other, or would have no effect.
    """
    return _settled(defaults, dict(given))


def _settled(defaults: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    _refuse_what_has_no_effect(defaults, values)
    for first, longest in _PAUSES.items():
        _raise_pause(defaults, values, first, longest)
    if "delivery_timeout_ms" in defaults:
        _settle_delivery(defaults, values)
        _settle_idempotence(values)
        _check_transactions(values)
    elif "request_timeout_ms" in values:
        default = defaults["default_api_timeout_ms"]
        values.setdefault("default_api_timeout_ms", max(default, values["request_timeout_ms"]))
    if "fetch_min_bytes" in defaults:
        _check_fetch(defaults, values)
    return values


def _raise_pause(
    defaults: Mapping[str, Any], values: dict[str, Any], first: str, longest: str
) -> None:
    """Raise the default of the longest pause to the first, which would otherwise be cut."""
    if first not in values:
        return
    values.setdefault(longest, max(defaults[longest], values[first]))
    if values[first] > values[longest]:
        raise ConfigError(
            f"{dotted(first)} is {values[first]}, above {dotted(longest)}, which is"
            f" {values[longest]}: the first pause cannot be longer than the longest"
        )


def _settle_delivery(defaults: Mapping[str, Any], values: dict[str, Any]) -> None:
    """Derive delivery.timeout.ms; refuse a linger.ms that lets records fail before sending."""
    linger_ms = values.get("linger_ms", defaults["linger_ms"])
    request_ms = values.get("request_timeout_ms", defaults["request_timeout_ms"])
    enough_ms = max(defaults["delivery_timeout_ms"], linger_ms + request_ms)
    values.setdefault("delivery_timeout_ms", enough_ms)
    if values["delivery_timeout_ms"] <= linger_ms:
        raise ConfigError(
            f"delivery.timeout.ms is {values['delivery_timeout_ms']}; it must be above linger.ms,"
            f" which is {_shown('linger_ms', defaults, values)}, or records fail before they are"
            " sent"
        )


def _settle_idempotence(values: dict[str, Any]) -> None:
    """Turn off default idempotence if other settings exclude it (KIP-679)."""
    is_out = str(values.get("acks", "all")) not in ("all", "-1")
    if is_out or values.get("max_in_flight_requests_per_connection", 0) > _IN_FLIGHT_MAX:
        values.setdefault("enable_idempotence", False)


def _check_transactions(values: Mapping[str, Any]) -> None:
    """Check that a transactional producer is idempotent (KIP-98)."""
    if values.get("transactional_id") is None:
        if "transaction_timeout_ms" in values:
            raise ConfigError("transaction.timeout.ms has no effect without transactional.id")
        return
    if values["transactional_id"] == "":
        raise ConfigError("transactional.id is empty; leave it out to send without transactions")
    if not values.get("enable_idempotence", True):
        raise ConfigError(
            "transactional.id needs enable.idempotence, and for that acks=all and at most 5"
            " max.in.flight.requests.per.connection: leave those out"
        )


def _check_fetch(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Refuse a minimum above the maximum: the broker would always wait for the full time."""
    least = values.get("fetch_min_bytes", defaults["fetch_min_bytes"])
    most = values.get("fetch_max_bytes", defaults["fetch_max_bytes"])
    if least > max(most, defaults["fetch_min_bytes"]):
        raise ConfigError(
            f"fetch.min.bytes is {least}; it cannot be above fetch.max.bytes, which is"
            f" {_shown('fetch_max_bytes', defaults, values)}"
        )


def _shown(name: str, defaults: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    return f"{values[name]}" if name in values else f"{defaults[name]} (the default)"


def _refuse_what_has_no_effect(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """L39: a setting that would have no effect is an error."""
    if values.get("group_protocol") == "consumer":
        for name, instead in _CLASSIC_ONLY.items():
            if name in values:
                raise ConfigError(
                    f"{dotted(name)} has no effect with group.protocol=consumer: set {instead}"
                )
    if values.get("group_protocol") == "draft":
        for name in _NOT_IN_DRAFT:
            if name in values:
                raise ConfigError(f"{dotted(name)} has no effect with group.protocol=draft")
    if "group_protocol" in defaults and values.get("group_id") is None:
        _refuse_without_group(values)


def _refuse_without_group(values: Mapping[str, Any]) -> None:
    if values.get("enable_auto_commit"):
        raise ConfigError("enable.auto.commit needs group.id: there is no group to commit to")
    if values.get("group_instance_id") is not None:
        raise ConfigError("group.instance.id needs group.id: there is no group to be a member of")
