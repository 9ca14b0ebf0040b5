"""Settings of Kafka that this client does not have, and why: better than "unknown"."""

from __future__ import annotations

import logging
from functools import cache

log = logging.getLogger("kohort.client")

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
}

# To do nothing about them changes neither what is read nor what is written, whatever their value.
_WITHOUT_EFFECT = frozenset(
    {
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "metadata.max.idle.ms",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "send.buffer.bytes",
    }
)

# Those of Kafka 4's consumer, producer and admin client whose values an application may rely on.
_LACKING = frozenset(
    {
        "bootstrap.controllers",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "config.providers",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.class",
        "partitioner.ignore.keys",
        "security.providers",
        "share.acknowledgement.mode",
        "socket.connection.setup.timeout.max.ms",
        "transaction.two.phase.commit.enable",
    }
)


def why_rejected(key: str) -> str | None:
    """Return why a setting (with dots) is not taken, None when nothing is known about it."""
    if key in _REASONS:
        return _REASONS[key]
    if key in _LACKING or key in _WITHOUT_EFFECT:
        return "a setting of Kafka that this client does not have; remove it"
    return next((why for prefix, why in _PREFIXES.items() if key.startswith(prefix)), None)


def has_no_effect(key: str) -> bool:
    """Whether a setting (with dots) can be passed over, because nothing would be different.

    It is said once for each setting, at level INFO.
    """
    if key not in _WITHOUT_EFFECT:
        return False
    _say_without_effect(key)
    return True


@cache
def _say_without_effect(key: str) -> None:
    log.info("%s is a setting of Kafka that this client does not have; it has no effect", key)
