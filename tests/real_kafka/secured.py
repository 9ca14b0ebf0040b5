"""Apache Kafka with TLS and SASL, for tests: a listener for each way to secure one."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from kohort.broker import EmbeddedBroker, Security
from tests.real_kafka.broker import FAST_START, RealKafka
from tests.real_kafka.certificates import Authority, Signed

USER, PASSWORD = "alice", "alice-secret"  # of tests
# Where ACLs decide, this user may do nothing; the other user and these may do everything.
POWERLESS, POWERLESS_PASSWORD = "mallory", "mallory-secret"
SUPER_USERS = ("ANONYMOUS", USER, "CN=client")
LISTENERS = {
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
    "SASL_SSL": "SASL_SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SHORT": "SASL_SSL",
}
# How long a session of the listener SHORT lasts.
SESSION_MS = 2_000
ALL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
MECHANISMS = {"SASL_PLAINTEXT": ALL[:2], "SHORT": ("SCRAM-SHA-512",)}
_MODULES = "org.apache.kafka.common.security"
_JAAS = {
    "plain": f'{_MODULES}.plain.PlainLoginModule required username="broker" password="broker-pw"'
    f' user_{USER}="{PASSWORD}" user_{POWERLESS}="{POWERLESS_PASSWORD}";',
    "scram-sha-256": f"{_MODULES}.scram.ScramLoginModule required;",
    "scram-sha-512": f"{_MODULES}.scram.ScramLoginModule required;",
    "oauthbearer": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required"
    ' unsecuredLoginStringClaim_sub="broker";',
}


class Secured:
    """What both brokers have: listeners, and the settings of clients that reach them.

    Attributes:
        authority: Signs the certificates of the listeners, and of clients.
        client: A client's certificate.
        addresses: Where the listeners are, by their names.
        bootstrap_servers: A listener without security.
    """

    authority: Authority
    client: Signed
    addresses: dict[str, str]
    bootstrap_servers: str

    def settings(self, listener: str, **others: object) -> dict[str, Any]:
        """Settings of a client that reaches a listener, and trusts its authority."""
        protocol = LISTENERS[listener]
        found: dict[str, Any] = {
            "bootstrap_servers": self.addresses[listener],
            "security_protocol": protocol,
        }
        if "SSL" in protocol:
            found["ssl_ca_location"] = str(self.authority.ca)
        return {**found, **others}

    def as_user(self, listener: str, mechanism: str, **others: object) -> dict[str, Any]:
        """Settings of a client that is the user of these tests."""
        user = {
            "sasl_mechanism": mechanism,
            "sasl_username": USER,
            "sasl_password": PASSWORD,
        }
        return self.settings(listener, **{**user, **others})

    def java_properties(self, listener: str, mechanism: str) -> str:
        """Settings of the same user for Java's tools."""
        module = f"{_MODULES}.scram.ScramLoginModule"
        settings = {
            "security.protocol": LISTENERS[listener],
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.ca),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} required username="{USER}" password="{PASSWORD}";',
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())


class SecuredKafka(RealKafka, Secured):
    """One node with the listeners of `LISTENERS`, and the authorizer of KRaft."""

    def __init__(self, folder: Path, jvm_options: Sequence[str] = FAST_START) -> None:
        self.authority = Authority(folder / "certificates")
        self.client = self.authority.sign("client")
        settings = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.ca),
            "sasl.enabled.mechanisms": ",".join(ALL),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": ";".join(f"User:{name}" for name in SUPER_USERS),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.short.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.short.scram-sha-512.connections.max.reauth.ms": str(SESSION_MS),
            **self._certificates(),
            **_jaas(),
        }
        users = [
            option
            for hash_name in ("256", "512")
            for name, password in ((USER, PASSWORD), (POWERLESS, POWERLESS_PASSWORD))
            for option in (
                "--add-scram",
                f"SCRAM-SHA-{hash_name}=[name={name},password={password}]",
            )
        ]
        super().__init__(folder, settings, jvm_options, listeners=LISTENERS, format_options=users)

    def _certificates(self) -> dict[str, str]:
        signed = {
            "ssl": self.authority.sign("broker"),
            "expired": self.authority.sign("expired", has_expired=True),
            "elsewhere": self.authority.sign("elsewhere", ["elsewhere.test"]),
        }
        names = {name.lower() for name, kind in LISTENERS.items() if "SSL" in kind}
        found: dict[str, str] = {}
        for name in names:
            certificate = signed.get(name, signed["ssl"])
            found[f"listener.name.{name}.ssl.keystore.type"] = "PEM"
            found[f"listener.name.{name}.ssl.keystore.location"] = str(certificate.keystore)
        return found


class SecuredEmbedded(Secured):
    """An embedded broker for each of the listeners: one has a single listener."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "certificates")
        self.client = self.authority.sign("client")
        self._stack = ExitStack()
        keystores = {
            "EXPIRED": self.authority.sign("expired", has_expired=True).keystore,
            "ELSEWHERE": self.authority.sign("elsewhere", ["elsewhere.test"]).keystore,
        }
        usual = self.authority.sign("broker").keystore
        self._securities = {
            name: Security(
                protocol,  # type: ignore[arg-type]  # it is one of the three
                users={USER: PASSWORD, POWERLESS: POWERLESS_PASSWORD},
                mechanisms=MECHANISMS.get(name, ALL),
                keystore=keystores.get(name, usual),
                client_certificates=name == "MUTUAL",
                truststore=self.authority.ca,
                session_ms=SESSION_MS if name == "SHORT" else 0,
                super_users=SUPER_USERS,
            )
            for name, protocol in LISTENERS.items()
        }

    def __enter__(self) -> Self:
        self.bootstrap_servers = self._started(None)
        self.addresses = {name: self._started(each) for name, each in self._securities.items()}
        return self

    def _started(self, security: Security | None) -> str:
        broker = self._stack.enter_context(EmbeddedBroker(security=security))
        return f"localhost:{broker.bootstrap_servers.rpartition(':')[2]}"

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def token(lasts_s: float = 3600, user: str = USER) -> str:
    """A token without a signature, which Kafka's brokers take in tests (RFC 7515, alg none)."""
    now = time.time()
    claims = {"sub": user, "iat": now, "exp": now + lasts_s}
    parts = (_base64({"alg": "none"}), _base64(claims), "")
    return ".".join(parts)


def _base64(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _jaas() -> dict[str, str]:
    return {
        f"listener.name.{name.lower()}.{mechanism}.sasl.jaas.config": jaas
        for name, kind in LISTENERS.items()
        if kind.startswith("SASL")
        for mechanism, jaas in _JAAS.items()
    }


__all__ = [
    "PASSWORD",
    "POWERLESS",
    "POWERLESS_PASSWORD",
    "SESSION_MS",
    "USER",
    "Secured",
    "SecuredEmbedded",
    "SecuredKafka",
    "Signed",
    "token",
]
