"""Security of an embedded broker: TLS, SASL, or both."""

from __future__ import annotations

import ssl
import tempfile
import tomllib
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field, structs

from kohort.broker.net.certificates import Certificates
from kohort.broker.net.sasl_mechanisms import MECHANISMS
from kohort.errors import ConfigError

Protocol = Literal["SSL", "SASL_SSL", "SASL_PLAINTEXT"]
_MODULES = "org.apache.kafka.common.security"
# This broker does not check signatures of tokens, so OAUTHBEARER is last.
_STRONGEST_FIRST = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")
_READABLE = ("PLAIN", "OAUTHBEARER")


class Security:
    """Security settings of a listener, and the matching settings for its clients.

    Without `keystore`, a certificate authority and certificates are created in a temporary folder
    that lasts as long as this object: pass the same object when you restart a broker.

        security = Security("SASL_SSL", users={"alice": "secret"})
        with EmbeddedBroker(security=security) as broker:
            Consumer.from_config({**broker.client_settings("alice"), "group.id": "g"})

    Attributes:
        protocol: Kafka's `security.protocol`.
        mechanisms: The enabled SASL mechanisms.
        session_ms: Lifetime of an authenticated session (KIP-368), 0 for that of the connection.
        users: Names and passwords.
        super_users: Principals that may do everything. With None there is no authorization, and all
            clients may do everything.
    """

    def __init__(
        self,
        protocol: Protocol,
        *,
        users: Mapping[str, str] | None = None,
        mechanisms: Sequence[str] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        client_certificates: bool = False,
        keystore: Path | str | None = None,
        truststore: Path | str | None = None,
        session_ms: int = 0,
        super_users: Sequence[str] | None = None,
    ) -> None:
        """Check and store the settings.

        Args:
            protocol: "SSL", "SASL_SSL" or "SASL_PLAINTEXT".
            users: Names and passwords of the users.
            mechanisms: A subset of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER; the latter
                takes unsigned tokens, as Apache Kafka does if no validator is configured.
            client_certificates: Whether clients need a certificate, too.
            keystore: PEM file with the broker's key and certificate; None: created.
            truststore: PEM file of the authority that signs clients' certificates; None: created.
            session_ms: See `session_ms`.
            super_users: Names of users that may do everything; ACLs decide for all others, and
                there are none at first. Without SASL, a name is the subject of a certificate, as
                "CN=client".

        Raises:
            ConfigError: The arguments contradict each other.
        """
        unknown = sorted({*mechanisms} - {*MECHANISMS})
        if protocol not in ("SSL", "SASL_SSL", "SASL_PLAINTEXT"):
            raise ConfigError(f"protocol={protocol!r} is not SSL, SASL_SSL or SASL_PLAINTEXT")
        if unknown:
            raise ConfigError(f"mechanisms: {unknown} are not among {sorted(MECHANISMS)}")
        if self._has_sasl(protocol) and not users and {*mechanisms} != {"OAUTHBEARER"}:
            raise ConfigError(f'protocol={protocol!r} needs users={{"name": "password"}}')
        self.protocol = protocol
        self.mechanisms = tuple(mechanisms) if self._has_sasl(protocol) else ()
        self.session_ms = session_ms
        self.users = dict(users or {})
        self.super_users = None if super_users is None else tuple(super_users)
        self._wants_certificates = client_certificates
        self._keystore, self._truststore = keystore, truststore
        self._made: tuple[Certificates, Path] | None = None

    @classmethod
    def from_file(cls, path: Path) -> Security:
        """Read the arguments from a TOML file with a table `users`; file names are relative to it.

        Args:
            path: The file.

        Raises:
            ConfigError: The file cannot be read, or the arguments contradict each other.
        """
        try:
            given = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
        try:
            arguments = msgspec.convert(given, _Arguments)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{path}: {error}") from None
        for name in ("keystore", "truststore"):
            if (file := getattr(arguments, name)) is not None:
                setattr(arguments, name, str(path.parent / file))
        try:
            return cls(**structs.asdict(arguments))
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    @staticmethod
    def _has_sasl(protocol: str) -> bool:
        return protocol.startswith("SASL")

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def authenticates(self) -> bool:
        """Whether each client must present a password, a token or a certificate."""
        return bool(self.mechanisms) or self._wants_certificates

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS settings of the listener, or None without TLS.

        Raises:
            ConfigError: A file cannot be read as PEM.
            MissingExtraError: Certificates are needed, and `cryptography` is not installed.
        """
        if not self.has_tls:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._keystore or self._certificates()[1])
            if self._wants_certificates:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(self._truststore or self._certificates()[0].ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cannot read keystore or truststore as PEM: {error}") from error
        return context

    def _certificates(self) -> tuple[Certificates, Path]:
        if self._made is None:
            folder = tempfile.TemporaryDirectory(prefix="kohort-security-")
            weakref.finalize(self, folder.cleanup)
            made = Certificates(Path(folder.name))
            self._made = made, made.sign("broker")
        return self._made

    # -------------------------------------------------------------------- settings of clients

    def client_settings(
        self, user: str | None = None, mechanism: str | None = None
    ) -> dict[str, str]:
        """Return settings for kohort's clients, by Kafka's names, without bootstrap.servers.

        With OAUTHBEARER the client also needs a token provider, and the user is ignored.

        Args:
            user: The user that logs in; None: the first user.
            mechanism: The SASL mechanism; None: the strongest enabled one.

        Raises:
            ConfigError: The user does not exist, or the mechanism is not enabled.
        """
        found = self.librdkafka_settings(user, mechanism)
        if not self.has_tls and found.get("sasl.mechanism") in _READABLE:
            found["sasl.allow.unencrypted"] = "true"
        return found

    def librdkafka_settings(
        self, user: str | None = None, mechanism: str | None = None
    ) -> dict[str, str]:
        """Return settings for librdkafka's clients, which reject unknown settings.

        Args:
            user: The user that logs in; None: the first user.
            mechanism: The SASL mechanism; None: the strongest enabled one.

        Raises:
            ConfigError: The user does not exist, or the mechanism is not enabled.
        """
        found: dict[str, str] = {"security.protocol": self.protocol}
        if self.has_tls and self._keystore is None:
            found["ssl.ca.location"] = str(self._certificates()[0].ca)
            if self._wants_certificates and self._truststore is None:
                pem = str(self._certificates()[0].sign(user or "client"))
                found |= {"ssl.certificate.location": pem, "ssl.key.location": pem}
        if self.mechanisms:
            found["sasl.mechanism"] = chosen = self._chosen(mechanism)
            name = self._user(user)
            if name is not None and chosen != "OAUTHBEARER":
                found |= {"sasl.username": name, "sasl.password": self.users[name]}
        return found

    def _chosen(self, mechanism: str | None) -> str:
        if mechanism is None:
            return next(each for each in _STRONGEST_FIRST if each in self.mechanisms)
        if mechanism not in self.mechanisms:
            raise ConfigError(f"mechanism={mechanism!r} is not among {sorted(self.mechanisms)}")
        return mechanism

    def _user(self, user: str | None) -> str | None:
        if user is not None and self.users and user not in self.users:
            raise ConfigError(f"user={user!r} is not among {sorted(self.users)}")
        return next(iter(self.users), None) if user is None or not self.users else user

    def java_settings(
        self, user: str | None = None, mechanism: str | None = None
    ) -> dict[str, str]:
        """Return settings for Java clients; Spark's source takes them with the prefix "kafka.".

        Args:
            user: The user that logs in; None: the first user.
            mechanism: The SASL mechanism; None: the strongest enabled one.

        Raises:
            ConfigError: The user does not exist, or the mechanism is not enabled.
        """
        known = self.client_settings(user, mechanism)
        same = ("security.protocol", "sasl.mechanism", "sasl.allow.unencrypted")
        found = {name: known[name] for name in same if name in known}
        if "ssl.ca.location" in known:
            found |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": known["ssl.ca.location"],
            }
        if "ssl.key.location" in known:
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": known["ssl.key.location"],
            }
        if "sasl.username" in known:
            scram = known["sasl.mechanism"].startswith("SCRAM")
            module = "scram.ScramLoginModule" if scram else "plain.PlainLoginModule"
            found["sasl.jaas.config"] = (
                f"{_MODULES}.{module} required username={_quoted(known['sasl.username'])} "
                f"password={_quoted(known['sasl.password'])};"
            )
        return found

    def write_settings(self, folder: Path, bootstrap_servers: str) -> None:
        """Write client settings to files that only their owner can read.

        Each user gets `NAME.properties` for Java clients and `--command-config`, and `NAME.conf`
        for librdkafka; without users, NAME is "client".

        Args:
            folder: Folder for the files.
            bootstrap_servers: The brokers named in the files.

        Raises:
            ConfigError: The files cannot be written.
        """
        address = {"bootstrap.servers": bootstrap_servers}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for user in self.users or (None,):
                name = user or "client"
                if Path(name).name != name:
                    raise ConfigError(f"user {name!r} cannot be used as a file name")
                java = {**address, **self.java_settings(user)}
                _write_private(folder / f"{name}.properties", properties(java))
                known = {**address, **self.librdkafka_settings(user)}
                text = "".join(f"{key}={value}\n" for key, value in known.items())
                _write_private(folder / f"{name}.conf", text)
        except OSError as error:
            raise ConfigError(f"{folder}: cannot write the settings: {error.strerror}") from None


class _Arguments(Struct, forbid_unknown_fields=True):
    """The keys of a file; see `Security`."""

    protocol: Protocol
    users: dict[str, str] = field(default_factory=dict)
    mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    client_certificates: bool = False
    keystore: str | None = None
    truststore: str | None = None
    session_ms: int = 0
    super_users: tuple[str, ...] | None = None


def properties(settings: Mapping[str, str]) -> str:
    """Format settings as a file for `java.util.Properties`."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"})


def _escaped(value: str) -> str:
    value = value.translate(_ESCAPES)
    return f"\\{value}" if value.startswith(" ") else value


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.chmod(0o600)  # the file may have existed
    path.write_text(text, encoding="utf-8")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
