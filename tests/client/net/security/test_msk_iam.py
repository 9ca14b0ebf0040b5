"""IAM of Amazon MSK: tokens that a broker can verify, and errors when there are none."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pytest

from kohort import AdminClient
from kohort.broker import EmbeddedBroker, Security
from kohort.broker.net.sasl_mechanisms import MECHANISMS, RefusedError
from kohort.client.config.definitions import AdminConfig, make, make_from_kafka
from kohort.client.net.security.context import security_of
from kohort.client.net.security.msk_iam import IamTokens
from kohort.errors import AuthenticationError, BrokerUnavailableError, ConfigError
from kohort.extras import MissingExtraError

KEY_ID, SECRET = "AKIAPLANTED", "planted-secret-of-aws"
REGION_NAME = "eu-north-1"
PACKAGE = "software.amazon.msk.auth.iam"
MODULE = f"{PACKAGE}.IAMLoginModule required"
HOST = "b-1.flights.abc123.c2.kafka.eu-west-1.amazonaws.com"
IAM: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM"}
REGION = {**IAM, "sasl_aws_region": REGION_NAME}


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only static credentials: no network is used."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def signed_by(token: str) -> tuple[str, str, bool]:
    """The key and region of a token, and whether the secret has signed it (AWS SigV4)."""
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    given = dict(parse_qsl(url.query))
    signature = given.pop("X-Amz-Signature")
    given.pop("User-Agent")  # added after signing
    key_id, day, region, service, end = given["X-Amz-Credential"].split("/")
    asked = "\n".join(
        ("GET", "/", urlencode(sorted(given.items()), quote_via=quote, safe="-_.~"),
         f"host:{url.hostname}", "", "host", hashlib.sha256(b"").hexdigest())
    )  # fmt: skip
    text = "\n".join(
        ("AWS4-HMAC-SHA256", given["X-Amz-Date"], f"{day}/{region}/{service}/{end}",
         hashlib.sha256(asked.encode()).hexdigest())
    )  # fmt: skip
    key = f"AWS4{SECRET}".encode()
    for part in (day, region, service, end):
        key = hmac.digest(key, part.encode(), "sha256")
    expected = hmac.digest(key, text.encode(), "sha256").hex()
    is_action = given["Action"] == "kafka-cluster:Connect" and service == "kafka-cluster"
    return key_id, region, is_action and hmac.compare_digest(signature, expected)


class Validator:
    """Plays an MSK broker that validates a token."""

    user: str | None = None
    claimed = ""

    def answer(self, data: bytes) -> bytes:
        found = re.fullmatch(rb"n,,\x01auth=Bearer ([A-Za-z0-9_-]+)\x01\x01", data)
        if found is None:
            raise RefusedError("no token")
        key_id, region, is_signed = signed_by(found[1].decode())
        if not is_signed or region != REGION_NAME:
            raise RefusedError("Access denied")
        self.user = key_id
        return b""


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedBroker]:
    mechanisms: Any = MECHANISMS
    monkeypatch.setitem(mechanisms, "OAUTHBEARER", lambda _: Validator())
    security = Security("SASL_SSL", mechanisms=["OAUTHBEARER"])
    with EmbeddedBroker(security=security) as started:
        yield started


def settings_for(broker: EmbeddedBroker) -> dict[str, str]:
    """Settings as a provider's page for Java shows them."""
    return {
        **broker.client_settings(),
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f"{MODULE};",
        "sasl.client.callback.handler.class": f"{PACKAGE}.IAMClientCallbackHandler",
        "sasl.aws.region": REGION_NAME,
    }  # fmt: skip


def test_a_broker_accepts_a_token_of_static_credentials(broker: EmbeddedBroker) -> None:
    with AdminClient.from_config(settings_for(broker)) as admin:
        assert admin.list_topics() is not None


def test_a_broker_that_refuses_says_so_once(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with (
        AdminClient.from_config(settings_for(broker)) as admin,
        pytest.raises(AuthenticationError, match=r"AWS_MSK_IAM.*Access denied") as caught,
    ):
        admin.list_topics()
    assert "another" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "region"),
    [
        (HOST, "eu-west-1"),
        ("boot-abc.c3.kafka-serverless.us-east-2.amazonaws.com", "us-east-2"),
        ("b-2.x.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("b-2-public.x.kafka.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
    ],
)
def test_the_hosts_tell_the_region(host: str, region: str) -> None:
    config = make(AdminConfig, {**IAM, "bootstrap_servers": f"{host}:9098"})
    assert signed_by(IamTokens(config, [host]).token()) == (KEY_ID, region, True)


def test_a_token_is_kept_for_a_while() -> None:
    tokens = IamTokens(make(AdminConfig, REGION), [])
    assert tokens.token() is tokens.token()


def test_a_profile_may_have_the_credentials(tmp_path: Path) -> None:
    """Spark's executors get them from the same setting."""
    profile = f"[flights]\naws_access_key_id = AKIAOTHER\naws_secret_access_key = {SECRET}\n"
    (tmp_path / "credentials").write_text(profile)
    options = {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}
    jaas = f'{MODULE} awsProfileName="flights";'
    given = {**options, "sasl.jaas.config": jaas, "bootstrap.servers": f"{HOST}:9098"}
    config = make_from_kafka(AdminConfig, given)
    assert signed_by(IamTokens(config, [HOST]).token()) == ("AKIAOTHER", "eu-west-1", True)


def test_a_role_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

    asked: list[tuple[str, ...]] = []

    def sign(*arguments: str) -> tuple[str, int]:
        asked.append(arguments)
        return "token", 0

    monkeypatch.setattr(MSKAuthTokenProvider, "generate_auth_token_from_role_arn", sign)
    jaas = f'{MODULE} awsRoleArn="arn:aws:iam::1:role/r" awsRoleSessionName="s";'
    config = make(AdminConfig, {**REGION, "sasl_jaas_config": jaas})
    assert IamTokens(config, []).token() == "token"
    assert asked == [(REGION_NAME, "arn:aws:iam::1:role/r", "s")]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (IAM, "do not name a region: set sasl.aws.region"),
        ({**IAM, "bootstrap_servers": f"{HOST}:1,b.x.kafka.us-east-1.amazonaws.com:1"},
         "name several regions"),
        ({**IAM, "sasl_aws_region": "x/y"}, "must be the name of a region"),
        ({**REGION, "security_protocol": "SASL_PLAINTEXT"}, "would send the token in plain text"),
        ({**REGION, "sasl_username": "a"}, "no effect with AWS_MSK_IAM"),
        ({**REGION, "sasl_oauthbearer_scope": "a"}, "is for sasl.mechanism=OAUTHBEARER"),
        ({**REGION, "sasl_jaas_config": f'{MODULE} awsStsRegion="r";'}, "not awsStsRegion"),
        ({**REGION, "sasl_jaas_config": f'{MODULE} awsRoleSessionName="r";'}, "no effect without"),
        ({**REGION, "sasl_jaas_config": f'{MODULE} awsRoleArn="r" awsProfileName="p";'},
         "exclude each other"),
        ({**REGION, "sasl_mechanism": "PLAIN"}, "sasl.aws.region is for sasl.mechanism=AWS_MSK"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit(settings: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make(AdminConfig, settings)


def test_without_credentials_it_says_where_to_give_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(AuthenticationError, match="no AWS credentials were found: set AWS_"):
        IamTokens(make(AdminConfig, REGION), []).token()


def test_a_profile_that_is_not_there_is_named() -> None:
    config = make(AdminConfig, {**REGION, "sasl_jaas_config": f'{MODULE} awsProfileName="p9";'})
    with pytest.raises(AuthenticationError, match=r"profile \(p9\) could not be found"):
        IamTokens(config, []).token()


@pytest.mark.parametrize(("status", "passes"), [(500, True), (403, False)])
def test_what_passes_is_tried_again(
    status: int, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    from botocore.exceptions import ClientError

    def fail(_: str) -> tuple[str, int]:
        raise ClientError({"ResponseMetadata": {"HTTPStatusCode": status}}, "AssumeRole")

    monkeypatch.setattr(MSKAuthTokenProvider, "generate_auth_token", fail)
    with pytest.raises(BrokerUnavailableError if passes else AuthenticationError):
        IamTokens(make(AdminConfig, REGION), []).token()


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("aws_msk_iam_sasl_signer")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'kohort\[msk\]'"):
        security_of(make(AdminConfig, REGION))
