"""Kerberos settings: options of Java's Krb5LoginModule, and the service name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kohort.errors import ConfigError

KERBEROS: Final = "GSSAPI"
_TAKEN: Final = frozenset(
    {"keyTab", "principal", "serviceName", "ticketCache", "useKeyTab", "useTicketCache"}
)
# Options of Java's module that have no effect here, or describe what this client always does.
_WITHOUT_EFFECT: Final = frozenset(
    {"debug", "doNotPrompt", "isInitiator", "refreshKrb5Config", "renewTGT", "storeKey"}
)


def check_kerberos(options: Mapping[str, str]) -> None:
    """Check the options of `Krb5LoginModule`.

    Raises:
        ConfigError: They contradict each other, or would have no effect.
    """
    for name in options:
        if name not in _TAKEN | _WITHOUT_EFFECT:
            known = ", ".join(sorted(_TAKEN))
            raise ConfigError(
                f"sasl.jaas.config: Krb5LoginModule accepts {known} here, but not {name:.40}"
            )
    uses_keys = options.get("useKeyTab", "").lower() == "true"
    if uses_keys and not options.get("keyTab"):
        raise ConfigError("sasl.jaas.config: useKeyTab=true needs keyTab")
    if "keyTab" in options and not uses_keys:
        raise ConfigError("sasl.jaas.config: keyTab has no effect without useKeyTab=true")
    if "ticketCache" in options and options.get("useTicketCache", "").lower() != "true":
        raise ConfigError("sasl.jaas.config: ticketCache has no effect without useTicketCache=true")
    if "ticketCache" in options and uses_keys:
        raise ConfigError("sasl.jaas.config: ticketCache and keyTab exclude each other")


def service_of(options: Mapping[str, str], given: str | None) -> str:
    """Return the service name: the first part of the brokers' principals.

    Args:
        options: Options of `Krb5LoginModule`.
        given: The setting `sasl.kerberos.service.name`.

    Raises:
        ConfigError: Both are given and differ, or the name is invalid.
    """
    found = options.get("serviceName", given)
    if None not in (found, given) and found != given:
        raise ConfigError(
            "sasl.kerberos.service.name and serviceName in sasl.jaas.config exclude each other"
        )
    if found is not None and (not found or "@" in found or "/" in found):
        raise ConfigError("sasl.kerberos.service.name is the first part of a principal, like kafka")
    return found or "kafka"
