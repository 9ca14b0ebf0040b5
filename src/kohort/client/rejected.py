"""Settings of Kafka that this client does not have, and why: better than "unknown"."""

from __future__ import annotations

_SECURITY = "TLS and SASL are not supported so far; only security.protocol=PLAINTEXT is"

_REASONS = {
    "transactional.id": "transactional producers are not supported so far",
    "transaction.timeout.ms": "transactional producers are not supported so far",
    "key.deserializer": "give a Python callable, as the keyword argument key_deserializer",
    "value.deserializer": "give a Python callable, as the keyword argument value_deserializer",
    "key.serializer": "give a Python callable, as the keyword argument key_serializer",
    "value.serializer": "give a Python callable, as the keyword argument value_serializer",
    "interceptor.classes": "interceptors are Java classes; wrap the calls in Python instead",
    "metric.reporters": "metric reporters are Java classes; use event_listener instead",
    "retries": "retries end with delivery.timeout.ms; set that instead",
    "api.version": "versions are negotiated with each broker",
    "api.version.request": "versions are negotiated with each broker",
}

_PREFIXES = {
    "ssl.": _SECURITY,
    "sasl.": _SECURITY,
    "metrics.": "the client keeps no windows of metrics; count what event_listener is told",
}


def why_rejected(key: str) -> str | None:
    """Return why a setting (with dots) is not taken, None when nothing is known about it."""
    if key in _REASONS:
        return _REASONS[key]
    return next((why for prefix, why in _PREFIXES.items() if key.startswith(prefix)), None)
