"""The security of a client's connections, from its TLS and SASL settings."""

from __future__ import annotations

from msgspec import Struct

from kohort.client.config.definitions import ClientConfig
from kohort.client.config.iam_options import IAM
from kohort.client.net.proxy import Proxy
from kohort.client.net.security.auth import Authenticator, NoAuthentication
from kohort.client.net.security.msk_iam import IamTokens
from kohort.client.net.security.reloading import ReloadedFiles
from kohort.client.net.security.tls import Tls
from kohort.client.net.security.tls_context import tls_context


class Security(Struct, frozen=True):
    """Encryption and authentication of connections.

    Attributes:
        tls: The encryption; None for none.
        authenticator: The authentication.
        proxy: The proxy that they go through; None for none.
    """

    tls: Tls | None
    authenticator: Authenticator
    proxy: Proxy | None = None

    def __repr__(self) -> str:
        """Return a text with the kinds of security, without secrets."""
        kinds = f"tls={self.tls is not None}, {type(self.authenticator).__name__}"
        return f"Security({kinds}{'' if self.proxy is None else f', {self.proxy!r}'})"


PLAINTEXT = Security(None, NoAuthentication())


def security_of(config: ClientConfig) -> Security:
    """Return the security of a client; reads the files of certificates and keys.

    Raises:
        ConfigError: A file cannot be read, or has the wrong contents.
    """
    proxy = None if config.proxy_url is None else Proxy(config.proxy_url)
    if not (config.uses_tls or config.uses_sasl):
        return PLAINTEXT if proxy is None else Security(None, NoAuthentication(), proxy)
    renewed = ReloadedFiles(config)  # created before they are read, so no change is missed
    tls = Tls(tls_context(config), renewed) if config.uses_tls else None
    authenticator = _authenticator(config) if config.uses_sasl else NoAuthentication()
    return Security(tls, authenticator, proxy)


def _authenticator(config: ClientConfig) -> Authenticator:
    from kohort.client.net.security.sasl import OAuthBearer, Plain, ScramAuthenticator

    if config.mechanism == "OAUTHBEARER":
        from kohort.client.net.security.oauth import TokenEndpoint, called

        provider, timeout_ms = config.sasl_oauth_token_provider, config.setup_ms
        endpoint = None if provider else TokenEndpoint(config, timeout_ms / 1000)
        token = endpoint.token if endpoint else called(provider) if provider else None
        assert token is not None  # the settings are checked
        source = endpoint.shown if endpoint else "sasl_oauth_token_provider"
        return OAuthBearer(token, config.oauth_extensions(), source=source)
    if config.mechanism == "GSSAPI":
        from kohort.client.net.security.kerberos import Kerberos

        return Kerberos(config)
    if config.mechanism == IAM:
        tokens = IamTokens(config, [host for host, _ in config.addresses()])
        return OAuthBearer(tokens.token, {}, IAM, "AWS")
    username, password, is_token = config.user()
    if config.mechanism == "PLAIN":
        return Plain(username, password)
    return ScramAuthenticator(config.mechanism, username, password, is_token=is_token)
