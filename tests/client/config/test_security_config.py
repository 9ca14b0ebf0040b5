"""TLS and SASL settings: valid combinations, and no secrets in any text."""

from __future__ import annotations

import io
import logging
import pickle
import re
import ssl
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort import AdminClient, Consumer, Producer
from kohort.client.config.definitions import ClientConfig, ConsumerConfig, make, make_from_kafka
from kohort.client.config.jaas import parse_jaas
from kohort.client.config.security import ALIASES, SECRETS, SecurityConfig
from kohort.client.net.security.context import security_of
from kohort.client.net.security.oauth import TokenEndpoint
from kohort.client.net.security.tls_context import tls_context
from kohort.errors import ConfigError, KohortError
from tests.real_kafka.certificates import Authority, Signed

JAAS = "org.apache.kafka.common.security"
PLAIN: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "pw",
}
OAUTH: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
TLS: dict[str, Any] = {"security_protocol": "SSL"}
ENDPOINT = {
    "sasl_oauthbearer_token_endpoint_url": "https://idp.test/token",
    "sasl_oauthbearer_client_id": "me",
    "sasl_oauthbearer_client_secret": "s",
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def signed(authority: Authority) -> Signed:
    return authority.sign("client", password="key-secret")


@pytest.mark.parametrize("name", sorted(SecurityConfig.__struct_fields__))
def test_a_setting_without_its_protocol_is_refused(name: str) -> None:
    """Especially `sasl.mechanism` without `security.protocol`, which would use plaintext."""
    if name in ("security_protocol", "proxy_url"):
        return
    value: object = "https" if name.startswith("ssl_endpoint") else "x"
    if name == "sasl_allow_unencrypted":
        value = "true"
    if name.startswith("ssl_endpoint"):
        value = ""
    with pytest.raises(ConfigError, match="has no effect with"):
        make(
            ConsumerConfig,
            {name: value} if name != "https_ca_location" else {"ssl_key_password": "x"},
        )


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"security_protocol": "TLS"}, "can be PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security_protocol": "SASL_SSL"}, "sasl.mechanism is needed"),
        ({**PLAIN, "sasl_mechanism": "CRAM-MD5"}, "not known; supported are"),
        ({**PLAIN, "security_protocol": "SASL_PLAINTEXT"}, "would send the password in plain text"),
        ({**PLAIN, "sasl_password": ""}, "there is no password"),
        ({**PLAIN, "sasl_username": None}, "there is no username"),
        ({**PLAIN, "sasl_password": "a\0b"}, "NUL"),
        ({**PLAIN, "sasl_oauthbearer_scope": "x"}, "is for sasl.mechanism=OAUTHBEARER"),
        ({**PLAIN, "sasl_jaas_config": f'{JAAS}.plain.PlainLoginModule required username="a";'},
         "exclude each other"),
        (OAUTH, "needs one of sasl_oauth_token_provider and"),
        ({**OAUTH, "sasl_oauth_token_provider": 5}, "must be callable"),
        ({**OAUTH, "sasl_username": "u", **ENDPOINT}, "have no effect with OAUTHBEARER"),
        ({**OAUTH, **ENDPOINT, "sasl_oauthbearer_client_secret": None}, "needs sasl.oauthbearer"),
        ({**OAUTH, **ENDPOINT, "sasl_oauthbearer_extensions": "auth=x"}, "must be like name=value"),
        ({**TLS, "ssl_context": 5}, "must be an ssl.SSLContext, not a int"),
        ({**TLS, "ssl_ca_location": "a", "ssl_truststore_location": "b"}, "exclude each other"),
        ({**TLS, "ssl_certificate_location": "a"}, "belong together"),
        ({**TLS, "ssl_keystore_certificate_chain": "a"}, "belong together"),
        ({**TLS, "ssl_truststore_type": "BKS"}, "can be PEM or PKCS12"),
        ({**TLS, "ssl_endpoint_identification_algorithm": "ldaps"}, "can be https, or empty"),
        ({**TLS, "ssl_enabled_protocols": "TLSv1,TLSv1.1"}, "needs TLSv1.2, TLSv1.3"),
        ({**TLS, "ssl_cafile": "a"}, "set ssl.ca.location"),
        ({**TLS, "ssl_cipher_suites": "a"}, "ssl_context"),
        ({**TLS, "enable_ssl_certificate_verification": "false"}, "always checked"),
        ({**PLAIN, "sasl_plain_password": "x"}, "set sasl.password"),
        ({**PLAIN, "sasl_kerberos_service_name": "x"}, "is for sasl.mechanism=GSSAPI"),
        ({**PLAIN, "sasl_kerberos_keytab": "x"}, "keyTab of Krb5LoginModule in sasl.jaas"),
        ({**PLAIN, "sasl_mechanisms": "PLAIN"}, "another name of sasl.mechanism"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit(settings: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        make(ConsumerConfig, settings)
    assert "pw" not in str(caught.value)


def test_what_java_and_librdkafka_call_them() -> None:
    java = make_from_kafka(
        ConsumerConfig,
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{JAAS}.scram.ScramLoginModule required\n username="al" '
            ' password="a\\"b;c" ;',
            "ssl.truststore.type": "JKS",
            "ssl.truststore.location": "store",
            "sasl.login.refresh.window.factor": "0.8",
        },
    )
    assert java.user() == ("al", 'a"b;c', False)
    librdkafka = make_from_kafka(
        ConsumerConfig,
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "al",
            "sasl.password": "b",
            "ssl.ca.pem": "PEM",
        },
    )
    assert (librdkafka.mechanism, librdkafka.user()) == ("PLAIN", ("al", "b", False))
    assert librdkafka.ssl_truststore_certificates == "PEM"
    tokens = make_from_kafka(
        ConsumerConfig,
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": f"{JAAS}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": "https://idp.test/token",
            "sasl.jaas.config": f"{JAAS}.oauthbearer.OAuthBearerLoginModule required"
            ' clientId="me" clientSecret="s" scope="kafka" extension_logicalCluster="lkc-1";',
        },
    )
    assert tokens.oauth_client() == ("me", "s", "kafka")
    assert tokens.oauth_extensions() == {"logicalCluster": "lkc-1"}
    assert set(ALIASES.values()) <= set(SecurityConfig.__struct_fields__)


@pytest.mark.parametrize(
    "text",
    ["", "Module", "Module required", 'Module required a="b"', "Module maybe a=b;",
     'M required a="b;', "M required a b;", "A required a=b; B required a=b;", "M required a=;"],
)  # fmt: skip
def test_jaas_that_is_malformed(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_jaas(text)


@given(st.text())
def test_any_jaas_is_an_entry_or_refused_without_its_text(text: str) -> None:
    try:
        parse_jaas(f'M required password="{text}')
    except ConfigError as error:
        told = str(error)
    else:
        return
    assert len(text) < 8 or text not in told


def in_one_line(pem: str) -> str:
    """PEM as read from a properties file with a backslash at the end of each line."""
    return " ".join(pem.split("\n"))


@pytest.mark.parametrize("kind", ["pem", "text", "line", "files", "p12"])
def test_certificates_of_each_kind(kind: str, authority: Authority, signed: Signed) -> None:
    key = signed.key.read_text()
    settings: dict[str, str] = {
        "pem": {"ssl_truststore_location": str(authority.ca),
                "ssl_keystore_location": str(signed.keystore), "ssl_key_password": "key-secret"},
        "text": {"ssl_truststore_certificates": authority.ca.read_text(), "ssl_keystore_key": key,
                 "ssl_keystore_certificate_chain": signed.certificate.read_text(),
                 "ssl_key_password": "key-secret"},
        "line": {"ssl_truststore_certificates": in_one_line(authority.ca.read_text() * 2),
                 "ssl_keystore_key": in_one_line(key),
                 "ssl_keystore_certificate_chain": in_one_line(signed.certificate.read_text()),
                 "ssl_key_password": "key-secret"},
        "files": {"ssl_ca_location": str(authority.folder), "ssl_key_location": str(signed.key),
                  "ssl_certificate_location": str(signed.certificate),
                  "ssl_key_password": "key-secret"},
        "p12": {"ssl_truststore_location": str(signed.trust_p12),
                "ssl_truststore_password": Signed.PASSWORD,
                "ssl_keystore_location": str(signed.p12), "ssl_keystore_password": Signed.PASSWORD},
    }[kind]  # fmt: skip
    context = tls_context(make(ConsumerConfig, {**TLS, **settings}))
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.get_ca_certs()


@pytest.mark.parametrize("kind", ["file", "folder", "store", "text"])
def test_authorities_may_have_any_names(kind: str, authority: Authority, tmp_path: Path) -> None:
    """Bundles contain them as comments, in the language of the authority."""
    named = tmp_path / "ca.pem"
    named.write_text(f"# Főtanúsítvány\n{authority.ca.read_text()}", "utf-8")
    settings = {
        "file": {"ssl_ca_location": str(named)},
        "folder": {"ssl_ca_location": str(tmp_path)},
        "store": {"ssl_truststore_location": str(named)},
        "text": {"ssl_truststore_certificates": named.read_text("utf-8")},
    }[kind]
    assert tls_context(make(ConsumerConfig, {**TLS, **settings})).get_ca_certs()


def test_names_are_not_compared_only_when_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    settings = {**TLS, "ssl_endpoint_identification_algorithm": ""}
    assert not tls_context(make(ConsumerConfig, settings)).check_hostname
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert "impersonate a broker" in line.getMessage()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"ssl_ca_location": "/nowhere.pem"}, "ssl.ca.location: /nowhere.pem: No such file"),
        ({"ssl_ca_location": "{key}"}, "ssl.ca.location: it has no certificates"),
        ({"ssl_truststore_location": "{jks}"}, "keytool -importkeystore"),
        ({"ssl_truststore_location": "{ca}", "ssl_truststore_type": "PKCS12"}, "looks like PEM"),
        ({"ssl_truststore_location": "{p12}", "ssl_truststore_password": "hunter2"},
         "ssl.truststore.password is wrong"),
        ({"ssl_truststore_location": "{key_p12}", "ssl_truststore_password": Signed.PASSWORD},
         "ssl.truststore.location has no certificates"),
        ({"ssl_ca_location": "{greek}"}, "ssl.ca.location: it has no certificates"),
        ({"ssl_ca_location": "{greek_folder}"}, "has no .pem, .crt or .cer files with any"),
        ({"ssl_truststore_certificates": "Ω"}, "ssl.truststore.certificates: it has no certif"),
        ({"ssl_ca_location": "ca\0.pem"}, "is not a valid file name"),
        ({"ssl_keystore_location": "{keystore}", "ssl_key_password": "hunter2" * 200},
         "ssl.key.password is wrong"),
        ({"ssl_keystore_location": "{trust}", "ssl_keystore_password": Signed.PASSWORD},
         "has no private key"),
        ({"ssl_keystore_location": "{keystore}"}, "the private key is encrypted: set ssl.key.pass"),
        ({"ssl_keystore_location": "{keystore}", "ssl_key_password": "hunter2"}, "is wrong"),
        ({"ssl_certificate_location": "{other}", "ssl_key_location": "{key}",
          "ssl_key_password": "key-secret"}, "does not belong to the certificate"),
    ],
)  # fmt: skip
def test_stores_that_cannot_be_used(
    settings: dict[str, str], why: str, authority: Authority, signed: Signed, tmp_path: Path
) -> None:
    jks = tmp_path / "store.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    key_p12 = tmp_path / "key.p12"
    key_p12.write_bytes(signed.key_p12())
    greek = tmp_path / "names" / "greek.pem"
    greek.parent.mkdir()
    greek.write_text("Ω", "utf-8")
    places = {"key": signed.key, "jks": jks, "key_p12": key_p12, "greek": greek,
              "greek_folder": greek.parent, "ca": authority.ca, "p12": signed.trust_p12,
              "trust": signed.trust_p12, "keystore": signed.keystore,
              "other": authority.sign("other").certificate}  # fmt: skip
    given = {name: value.format(**places) for name, value in settings.items()}
    with pytest.raises(ConfigError, match=re.escape(why) if "{" in why else why) as caught:
        tls_context(make(ConsumerConfig, {**TLS, **given}))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["http://idp.test/token", "file:///etc/passwd", "https://", "https://u:p@idp.test/", "ftp://x/y",
     "https://[/", "x"],
)  # fmt: skip
def test_a_token_endpoint_that_would_give_the_secret_away(url: str) -> None:
    config = make(ConsumerConfig, {**OAUTH, **ENDPOINT, "sasl_oauthbearer_token_endpoint_url": url})
    with pytest.raises(ConfigError, match=r"token\.endpoint\.url"):
        TokenEndpoint(config, 1)


# -------------------------------------------------------------------------------------- secrets

PLANTED = "pLaNtEd-SeCrEt"
SECRET_SETTINGS: list[dict[str, Any]] = [
    {**PLAIN, "sasl_password": PLANTED},
    {**PLAIN, "sasl_mechanism": "SCRAM-SHA-256", "sasl_password": PLANTED},
    {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_jaas_config": f'{JAAS}.plain.PlainLoginModule required username="a"'
        f' password="{PLANTED}";',
    },
    {**OAUTH, **ENDPOINT, "sasl_oauthbearer_client_secret": PLANTED},
    {**OAUTH, "sasl_oauth_token_provider": lambda: PLANTED},
]
BAD_SETTINGS: list[dict[str, Any]] = [
    *({**PLAIN, "security_protocol": "SSL", name: PLANTED} for name in sorted(SECRETS)),
    *({**PLAIN, name: PLANTED} for name in sorted(SECRETS)),
    *({**TLS, name: PLANTED} for name in sorted(SECRETS)),
    *({**TLS, name: [PLANTED]} for name in sorted(SECRETS)),
    *({**TLS, name: PLANTED + "\ud800"} for name in sorted(SECRETS)),
    {**TLS, "ssl_keystore_key": PLANTED, "ssl_keystore_certificate_chain": "x"},
    {**PLAIN, "sasl_jaas_config": f"M required password={PLANTED}"},
    {**OAUTH, "sasl_oauthbearer_token_endpoint_url": f"http://u:{PLANTED}@x/",
     "sasl_oauthbearer_client_id": "a", "sasl_oauthbearer_client_secret": PLANTED},
]  # fmt: skip


@pytest.fixture
def everything_logged() -> Iterator[io.StringIO]:
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield text
    root.removeHandler(handler)
    root.setLevel(level)


def shown(thing: object) -> str:
    """Printed forms of an object and its parts, as in debuggers, tools and logs."""
    seen: set[int] = set()
    found: list[str] = []

    def look(each: object, depth: int) -> None:
        if id(each) in seen or depth > 3:
            return
        seen.add(id(each))
        found.append(f"{each!r} {each!s}")
        for inner in vars(each).values() if hasattr(each, "__dict__") else ():
            if not isinstance(inner, str | bytes | int | dict):
                look(inner, depth + 1)

    look(thing, 0)
    return "\n".join(found)


@pytest.mark.parametrize("number", range(len(SECRET_SETTINGS)))
@pytest.mark.parametrize("kind", [Consumer, Producer, AdminClient])
def test_a_client_shows_no_secret(
    kind: type[Any], number: int, everything_logged: io.StringIO
) -> None:
    settings = {**SECRET_SETTINGS[number], "bootstrap_servers": "localhost:1"}
    config = make(ClientConfig, settings)
    assert "[hidden]" in repr(config) or number == len(SECRET_SETTINGS) - 1
    client = kind(**settings)
    try:
        texts = [
            shown(config),
            shown(security_of(config)),
            shown(client),
            str(config.__rich_repr__()),
        ]
        if isinstance(client, AdminClient):
            with (
                pytest.raises(KohortError) as caught,
                AdminClient(**settings, default_api_timeout_ms=100) as brief,
            ):
                brief.list_topics()
            texts.append("".join(traceback.format_exception(caught.value)))
            texts.append(repr(pickle.dumps(caught.value)))
    finally:
        client.close()
    assert PLANTED not in "\n".join(texts)
    assert PLANTED not in everything_logged.getvalue()


@pytest.mark.parametrize("settings", BAD_SETTINGS)
def test_an_error_about_a_setting_shows_no_secret(settings: dict[str, Any]) -> None:
    try:
        config = make(ClientConfig, settings)
        security_of(config)
    except ConfigError as error:
        told = "".join(traceback.format_exception(error))
    else:
        told = repr(config)
    assert PLANTED not in told
