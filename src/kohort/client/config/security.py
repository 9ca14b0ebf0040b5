"""TLS and SASL settings, and checks of their combinations; no file is read here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from ssl import SSLContext
from typing import Any, Protocol, TypeAlias, cast

from msgspec import Struct

from kohort.client.config.contradictions import dotted
from kohort.client.config.iam_options import IAM, check_iam
from kohort.client.config.jaas import JaasEntry, parse_jaas
from kohort.client.config.kerberos_options import KERBEROS, check_kerberos, service_of
from kohort.client.net.proxy import Proxy
from kohort.errors import ConfigError
from kohort.values import defaults

Token: TypeAlias = str | Awaitable[str]


class TokenSource(Protocol):
    """A source of OAuth tokens, like the providers of kafka-python and aiokafka."""

    def token(self) -> Token:
        """Return a currently valid token."""


TokenProvider: TypeAlias = Callable[[], Token] | TokenSource
"""Returns a token or an awaitable; a function, or an object with a method `token`."""

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", IAM, KERBEROS)
SECRETS = frozenset(
    {
        "ssl_truststore_password",
        "ssl_keystore_password",
        "ssl_keystore_key",
        "ssl_key_password",
        "sasl_password",
        "sasl_jaas_config",
        "sasl_oauthbearer_client_secret",
        "sasl_oauthbearer_extensions",
        "proxy_url",
    }
)
HIDDEN = "[hidden]"

# Other names of settings: librdkafka's, and Kafka's own long ones (KIP-1258).
ALIASES = {
    "ssl_ca_pem": "ssl_truststore_certificates",
    "ssl_certificate_pem": "ssl_keystore_certificate_chain",
    "ssl_key_pem": "ssl_keystore_key",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_oauthbearer_client_credentials_client_id": "sasl_oauthbearer_client_id",
    "sasl_oauthbearer_client_credentials_client_secret": "sasl_oauthbearer_client_secret",
}

_MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "IAMLoginModule": (IAM,),
    "Krb5LoginModule": (KERBEROS,),
}
# Mechanisms whose messages contain a reusable secret.
_READABLE = ("PLAIN", "OAUTHBEARER", IAM)
_ENDPOINT = "sasl_oauthbearer_token_endpoint_url"


class SecurityConfig(Struct, frozen=True, kw_only=True):
    """Security settings of every client; docs/security.md has examples.

    Attributes:
        security_protocol: "PLAINTEXT", "SSL" (meaning TLS), "SASL_PLAINTEXT" or "SASL_SSL".
        ssl_context: Your own SSL context; other TLS settings may not be given with it.
        ssl_ca_location: File or folder with PEM certificates to trust, instead of the system's.
        ssl_truststore_location: File with certificates to trust: PEM or PKCS12.
        ssl_truststore_type: "PEM" or "PKCS12"; if not set, detected from the file.
        ssl_truststore_password: Password of a PKCS12 trust store.
        ssl_truststore_certificates: Certificates to trust, as PEM text.
        ssl_certificate_location: PEM file with the client's certificate and its chain.
        ssl_key_location: PEM file with the client's private key.
        ssl_keystore_location: File with the client's key and certificate: PEM or PKCS12.
        ssl_keystore_type: "PEM" or "PKCS12"; if not set, detected from the file.
        ssl_keystore_password: Password of a PKCS12 key store.
        ssl_keystore_certificate_chain: The client's certificate and its chain, as PEM text.
        ssl_keystore_key: The client's private key, as PEM text.
        ssl_key_password: Password of the private key.
        ssl_endpoint_identification_algorithm: "https" checks the broker's host name against its
            certificate; "" does not, so that anyone with a trusted certificate can impersonate a
            broker.
        ssl_enabled_protocols: TLS versions, "TLSv1.2" and "TLSv1.3"; both if not set.
        sasl_mechanism: "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM" or
            "GSSAPI" (Kerberos).
        sasl_username: User name (PLAIN, SCRAM).
        sasl_password: Password (PLAIN, SCRAM).
        sasl_jaas_config: User and password, or options of another mechanism, in Java's JAAS format.
        sasl_allow_unencrypted: Whether PLAIN, OAUTHBEARER and AWS_MSK_IAM may be used without TLS,
            where anyone on the network can read the password or token.
        sasl_oauth_token_provider: Returns a token for OAUTHBEARER, or an awaitable; a callable, or
            an object with a method `token`. Called for each connection, in a thread.
        sasl_oauthbearer_token_endpoint_url: Token endpoint for client credentials (KIP-768).
        sasl_oauthbearer_client_id: Client id for the token endpoint.
        sasl_oauthbearer_client_secret: Client secret for the token endpoint.
        sasl_oauthbearer_scope: Scope to request.
        sasl_oauthbearer_extensions: Extensions for the broker (KIP-342), "name=value,name=value".
        sasl_aws_region: Region of an MSK cluster (AWS_MSK_IAM); if not set, derived from the hosts
            of `bootstrap_servers`.
        sasl_kerberos_service_name: Service name of the brokers, the first part of their principals
            (GSSAPI); "kafka" if not set.
        https_ca_location: PEM file or folder of certificates to trust for the token endpoint; the
            system's if not set.
        proxy_url: Proxy to connect through, "socks5://user:password@host:port" or "http://...";
            it looks up the brokers' names.
    """

    security_protocol: str = "PLAINTEXT"
    ssl_context: SSLContext | None = None
    ssl_ca_location: str | None = None
    ssl_truststore_location: str | None = None
    ssl_truststore_type: str | None = None
    ssl_truststore_password: str | None = None
    ssl_truststore_certificates: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_keystore_location: str | None = None
    ssl_keystore_type: str | None = None
    ssl_keystore_password: str | None = None
    ssl_keystore_certificate_chain: str | None = None
    ssl_keystore_key: str | None = None
    ssl_key_password: str | None = None
    ssl_endpoint_identification_algorithm: str = "https"
    ssl_enabled_protocols: str | None = None
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = None
    sasl_jaas_config: str | None = None
    sasl_allow_unencrypted: bool = False
    sasl_oauth_token_provider: TokenProvider | None = None
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_client_id: str | None = None
    sasl_oauthbearer_client_secret: str | None = None
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_extensions: str | None = None
    sasl_aws_region: str | None = None
    sasl_kerberos_service_name: str | None = None
    https_ca_location: str | None = None
    proxy_url: str | None = None

    def __repr__(self) -> str:
        """Return the settings, without secrets."""
        shown = (f"{name}={_shown(name, getattr(self, name))}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({', '.join(shown)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return the same for tools that format values themselves."""
        found = [(name, getattr(self, name)) for name in self.__struct_fields__]
        return [
            (name, HIDDEN if name in SECRETS and value is not None else value)
            for name, value in found
        ]

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol.upper() in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether connections authenticate with SASL."""
        return self.security_protocol.upper().startswith("SASL_")

    @property
    def mechanism(self) -> str:
        """`sasl_mechanism` as sent to brokers; empty without SASL."""
        return (self.sasl_mechanism or "").upper() if self.uses_sasl else ""

    def jaas(self) -> JaasEntry | None:
        """Return `sasl_jaas_config`, parsed."""
        return None if self.sasl_jaas_config is None else parse_jaas(self.sasl_jaas_config)

    def check_security(self, hosts: Collection[str]) -> None:
        """Check the values.

        Args:
            hosts: Hosts of the bootstrap servers.

        Raises:
            ConfigError: They contradict each other, or would have no effect.
        """
        protocol = self.security_protocol
        if protocol.upper() not in PROTOCOLS:
            known = ", ".join(PROTOCOLS)
            raise ConfigError(f"security.protocol is {protocol!r:.80}; it can be {known}")
        self._refuse_without_effect("ssl_", self.uses_tls, "SSL or SASL_SSL")
        self._refuse_without_effect("sasl_", self.uses_sasl, "SASL_SSL or SASL_PLAINTEXT")
        if self.proxy_url is not None:
            Proxy(self.proxy_url)
        if self.uses_tls:
            self._check_tls()
        if self.uses_sasl:
            self._check_sasl(hosts)
        elif self.https_ca_location is not None:
            raise ConfigError(f"https.ca.location has no effect without {dotted(_ENDPOINT)}")

    def _given(self, prefix: str) -> list[str]:
        known = defaults(SecurityConfig)
        return [n for n in known if n.startswith(prefix) and getattr(self, n) != known[n]]

    def _refuse_without_effect(self, prefix: str, is_used: bool, instead: str) -> None:
        given = self._given(prefix)
        if given and not is_used:
            raise ConfigError(
                f"{dotted(given[0])} has no effect with"
                f" security.protocol={self.security_protocol}: set {instead}"
            )

    def _check_tls(self) -> None:
        others = [name for name in self._given("ssl_") if name != "ssl_context"]
        if self.ssl_context is not None:
            given: object = self.ssl_context
            if not isinstance(given, SSLContext):
                kind = type(given).__name__
                raise ConfigError(f"ssl_context must be an ssl.SSLContext, not a {kind}")
            if others:
                raise ConfigError(f"{dotted(others[0])} has no effect beside ssl_context")
        _one_kind(self, "ssl_ca_location", "ssl_truststore_location", "ssl_truststore_certificates")
        _one_kind(self, "ssl_certificate_location", "ssl_keystore_location",
                  "ssl_keystore_certificate_chain")  # fmt: skip
        _pair(self, "ssl_certificate_location", "ssl_key_location")
        _pair(self, "ssl_keystore_certificate_chain", "ssl_keystore_key")
        for name in ("ssl_truststore_type", "ssl_keystore_type"):
            _check_type(name, getattr(self, name))
        if self.ssl_endpoint_identification_algorithm.lower() not in ("https", "", "none"):
            raise ConfigError(
                "ssl.endpoint.identification.algorithm can be https, or empty to check no names"
            )
        self.tls_versions()

    def tls_versions(self) -> tuple[str, ...]:
        """Return the allowed TLS versions.

        Raises:
            ConfigError: None of them is supported.
        """
        supported = ("TLSv1.2", "TLSv1.3")
        if self.ssl_enabled_protocols is None:
            return supported
        given = {each.strip().lower() for each in self.ssl_enabled_protocols.split(",")}
        kept = tuple(each for each in supported if each.lower() in given)
        if not kept:
            raise ConfigError("ssl.enabled.protocols needs TLSv1.2, TLSv1.3, or both")
        return kept

    def _check_sasl(self, hosts: Collection[str]) -> None:
        mechanism = self.mechanism
        known = f"supported are {', '.join(MECHANISMS)}"
        if not mechanism:
            raise ConfigError(f"sasl.mechanism is needed with {self.security_protocol}: {known}")
        if mechanism not in MECHANISMS:
            raise ConfigError(f"sasl.mechanism is not known; {known}")
        is_in_the_clear = mechanism in _READABLE and not self.uses_tls
        if is_in_the_clear and not self.sasl_allow_unencrypted:
            what = "password" if mechanism == "PLAIN" else "token"
            raise ConfigError(
                f"sasl.mechanism={mechanism} with SASL_PLAINTEXT would send the {what} in plain"
                " text: set security.protocol=SASL_SSL; in a network that you"
                " trust, sasl.allow.unencrypted=true permits it"
            )
        self._check_jaas()
        if mechanism != IAM and self.sasl_aws_region is not None:
            raise ConfigError(f"sasl.aws.region is for sasl.mechanism={IAM}")
        if mechanism != KERBEROS and self.sasl_kerberos_service_name is not None:
            raise ConfigError(f"sasl.kerberos.service.name is for sasl.mechanism={KERBEROS}")
        if mechanism == "OAUTHBEARER":
            self._check_oauth()
            return
        if given := [*self._given("sasl_oauth"), *self._given("https_")]:
            raise ConfigError(f"{dotted(given[0])} is for sasl.mechanism=OAUTHBEARER")
        if mechanism == IAM:
            self._refuse_user()
            check_iam(self._jaas_options(), self.sasl_aws_region, hosts)
        elif mechanism == KERBEROS:
            self._refuse_user()
            check_kerberos(self._jaas_options())
            self.kerberos_service()
        else:
            self._check_user()

    def _check_jaas(self) -> None:
        entry = self.jaas()
        if entry is None:
            return
        if entry.module not in _MODULES:
            supported = ", ".join(_MODULES)
            raise ConfigError(f"sasl.jaas.config: the login module must be one of {supported}")
        if self.mechanism not in _MODULES[entry.module]:
            raise ConfigError(
                f"sasl.jaas.config has {entry.module}, which does not match"
                f" sasl.mechanism={self.mechanism}"
            )
        _one_kind(self, "sasl_jaas_config", "sasl_username")
        _one_kind(self, "sasl_jaas_config", "sasl_password")

    def user(self) -> tuple[str, str, bool]:
        """Return user and password, and whether they are the id and HMAC of a delegation token."""
        entry = self.jaas()
        if entry is None:
            return self.sasl_username or "", self.sasl_password or "", False
        is_token = entry.options.get("tokenauth", "").lower() == "true"
        return entry.options.get("username", ""), entry.options.get("password", ""), is_token

    def _refuse_user(self) -> None:
        if self.sasl_username is not None or self.sasl_password is not None:
            raise ConfigError(
                f"sasl.username and sasl.password have no effect with {self.mechanism}"
            )

    def _check_user(self) -> None:
        username, password, _ = self.user()
        if not username or not password:
            lacking = "password" if username else "username"
            raise ConfigError(
                f"sasl.mechanism={self.mechanism} needs sasl.username and sasl.password, or both in"
                f" sasl.jaas.config: there is no {lacking}"
            )
        if "\0" in username + password:
            raise ConfigError("sasl.username and sasl.password cannot have the character NUL")

    def kerberos_service(self) -> str:
        """Return the service name: the first part of the brokers' principals.

        Raises:
            ConfigError: Two different names are given, or the name is invalid.
        """
        return service_of(self._jaas_options(), self.sasl_kerberos_service_name)

    def oauth_client(self) -> tuple[str, str, str]:
        """Return client id, client secret and scope for the token endpoint; empty where not set."""
        options = self._jaas_options()
        names = (("client_id", "clientId"), ("client_secret", "clientSecret"), ("scope", "scope"))
        found = tuple(
            cast("str | None", getattr(self, f"sasl_oauthbearer_{own}")) or options.get(java, "")
            for own, java in names
        )
        return cast("tuple[str, str, str]", found)

    def oauth_extensions(self) -> dict[str, str]:
        """Return the extensions for the broker (KIP-342).

        Raises:
            ConfigError: They are malformed.
        """
        found = {
            name.removeprefix("extension_"): value
            for name, value in self._jaas_options().items()
            if name.startswith("extension_")
        }
        for each in (self.sasl_oauthbearer_extensions or "").split(","):
            if each.strip():
                name, _, value = each.strip().partition("=")
                found[name] = value
        for name, value in found.items():
            is_text = value.isascii() and value.isprintable()
            if not (name.isascii() and name.isalpha() and name != "auth" and value and is_text):
                raise ConfigError("sasl.oauthbearer.extensions must be like name=value,name=value")
        return found

    def _jaas_options(self) -> Mapping[str, str]:
        entry = self.jaas()
        return {} if entry is None else entry.options

    def _check_oauth(self) -> None:
        self._refuse_user()
        provider, url = self.sasl_oauth_token_provider, self.sasl_oauthbearer_token_endpoint_url
        if (provider is None) == (url is None):
            raise ConfigError(
                "sasl.mechanism=OAUTHBEARER needs one of sasl_oauth_token_provider and"
                f" {dotted(_ENDPOINT)}"
            )
        if provider is not None and not callable(getattr(provider, "token", provider)):
            raise ConfigError("sasl_oauth_token_provider must be callable, or have a method token")
        client_id, client_secret, _ = self.oauth_client()
        if url is not None and not (client_id and client_secret):
            raise ConfigError(
                f"{dotted(_ENDPOINT)} needs sasl.oauthbearer.client.id and"
                " sasl.oauthbearer.client.secret, or clientId and clientSecret in sasl.jaas.config"
            )
        self.oauth_extensions()


def security_text(name: str, value: object) -> str:
    """Return the text of a setting; errors do not show the given value.

    Raises:
        ConfigError: It is not a string, or cannot be encoded.
    """
    if not isinstance(value, str):
        raise ConfigError(f"{dotted(name)} must be a str, not a {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{dotted(name)} cannot be encoded as UTF-8") from None
    return value


def is_security_text(name: str) -> bool:
    """Whether a setting is a string about security."""
    return name in SecurityConfig.__struct_fields__ and name not in (
        "security_protocol",
        "ssl_context",
        "sasl_allow_unencrypted",
        "sasl_oauth_token_provider",
    )


def without_aliases(settings: Mapping[str, object]) -> dict[str, object]:
    """Return settings with aliases replaced by the names used here.

    Raises:
        ConfigError: A setting is given under two names.
    """
    found: dict[str, object] = {}
    for name, value in settings.items():
        own = ALIASES.get(name, name)
        if own in found or (own != name and own in settings):
            raise ConfigError(f"{dotted(name)} is another name of {dotted(own)}: set one of them")
        found[own] = value
    return found


def _shown(name: str, value: object) -> str:
    return HIDDEN if name in SECRETS and value is not None else repr(value)


def _one_kind(config: SecurityConfig, *names: str) -> None:
    given = [name for name in names if getattr(config, name) is not None]
    if len(given) > 1:
        raise ConfigError(f"{dotted(given[0])} and {dotted(given[1])} exclude each other")


def _pair(config: SecurityConfig, first: str, second: str) -> None:
    if (getattr(config, first) is None) != (getattr(config, second) is None):
        raise ConfigError(f"{dotted(first)} and {dotted(second)} belong together: set both")


def _check_type(name: str, kind: str | None) -> None:
    # A store of Java's type JKS may still be PKCS12; the file shows which.
    if kind is not None and kind.upper() not in ("PEM", "PKCS12", "JKS"):
        raise ConfigError(f"{dotted(name)} can be PEM or PKCS12")
