"""Kafka settings that this client does not support, with reasons: better than "unknown"."""

from __future__ import annotations

import logging
from functools import cache

log = logging.getLogger("kohort.client")

_KERBEROS = (
    "it is not supported; set principal and keyTab of Krb5LoginModule in sasl.jaas.config, or use"
    " the ticket cache of kinit"
)
_OWN_CONTEXT = "it is not supported; create your own ssl.SSLContext, and set ssl_context"
_TOKENS = (
    "it is not supported; set sasl_oauth_token_provider, a Python callable that returns a token"
)
_CHECKED = (
    "certificates are always checked; to trust one that no authority has signed, set it as"
    " ssl.ca.location"
)
# What this client always does, as Java does for tokens from an endpoint or from AWS.
_DONE_ANYWAY = {
    "client.dns.lookup": "use_all_dns_ips",
    "metadata.recovery.strategy": "rebootstrap",
    "sasl.login.callback.handler.class": "OAuthBearerLoginCallbackHandler",
    "sasl.client.callback.handler.class": "IAMClientCallbackHandler",
    "sasl.oauthbearer.jwt.retriever.class": "ClientCredentialsJwtRetriever",
    "sasl.oauthbearer.method": "oidc",
}

_REASONS = {
    "client.dns.lookup": "it can only be use_all_dns_ips: all addresses of a name are tried",
    "metadata.recovery.strategy": "it can only be rebootstrap: the bootstrap servers are asked"
    " again when no known broker answers",
    "key.deserializer": "pass a Python callable, as the keyword argument key_deserializer",
    "value.deserializer": "pass a Python callable, as the keyword argument value_deserializer",
    "key.serializer": "pass a Python callable, as the keyword argument key_serializer",
    "value.serializer": "pass a Python callable, as the keyword argument value_serializer",
    "interceptor.classes": "interceptors are Java classes; wrap the calls in Python instead",
    "metric.reporters": "metric reporters are Java classes; use event_listener instead",
    "retries": "retries end with delivery.timeout.ms; set that instead",
    "ssl.cafile": "set ssl.ca.location",
    "ssl.certfile": "set ssl.certificate.location",
    "ssl.keyfile": "set ssl.key.location",
    "ssl.password": "set ssl.key.password",
    "ssl.check.hostname": "set ssl.endpoint.identification.algorithm, https or empty",
    "sasl.plain.username": "set sasl.username",
    "sasl.plain.password": "set sasl.password",
    "api.version": "versions are negotiated with each broker",
    "api.version.request": "versions are negotiated with each broker",
}

_PREFIXES = {
    "sasl.kerberos.": _KERBEROS,
    "sasl.login.": "logins are not classes here; remove it",
    "sasl.client.callback.": "logins are not classes here; remove it",
    "sasl.oauthbearer.": _TOKENS,
    "enable.ssl.": _CHECKED,
    "ssl.": _OWN_CONTEXT,
}

# Settings that can be ignored: whatever their value, the same data is read and written.
_WITHOUT_EFFECT = frozenset(
    {
        "auto.include.jmx.reporter",
        "enable.metrics.push",
        "metadata.max.idle.ms",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "send.buffer.bytes",
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)

# Settings of Kafka 4's clients that this client lacks, and that an application may rely on.
_LACKING = frozenset(
    {
        "bootstrap.controllers",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "config.providers",
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
    """Return why a setting (with dots) is rejected, None when nothing is known about it."""
    if key in _REASONS:
        return _REASONS[key]
    if key in _LACKING or key in _WITHOUT_EFFECT:
        return "a Kafka setting that this client does not support; remove it"
    return next((why for prefix, why in _PREFIXES.items() if key.startswith(prefix)), None)


def has_no_effect(key: str, value: object) -> bool:
    """Whether a setting (with dots) can be ignored, because it makes no difference.

    This is logged once per setting, at level INFO.
    """
    known = _DONE_ANYWAY.get(key)
    if known is not None and str(value).rpartition(".")[2].lower() == known.lower():
        return True
    if key not in _WITHOUT_EFFECT:
        return False
    _say_without_effect(key)
    return True


@cache
def _say_without_effect(key: str) -> None:
    log.info("%s is a Kafka setting that this client does not support; it has no effect", key)
