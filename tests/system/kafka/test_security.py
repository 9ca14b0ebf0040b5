"""TLS and SASL against Apache Kafka: each way to secure a listener, and each way to be refused."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort import AdminClient, Consumer, Producer, TopicPartition
from kohort.client import NewTopic
from kohort.client.net.security.sasl import ScramAuthenticator
from kohort.errors import AuthenticationError, BrokerUnavailableError, KafkaError, TlsError
from kohort.spark.source.fetch.ranges import RangeReader
from tests.real_kafka.broker import free_ports
from tests.real_kafka.certificates import Signed
from tests.real_kafka.secured import SESSION_MS, Secured, SecuredEmbedded, SecuredKafka, token

RECORDS = 20
Settings = dict[str, Any]


@pytest.fixture(scope="module", params=[SecuredKafka, SecuredEmbedded], ids=["kafka", "embedded"])
def secured_kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    with request.param(tmp_path_factory.mktemp("secured")) as kafka:
        yield kafka


def tokens(kafka: Secured) -> Settings:
    return kafka.settings("SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=token)


async def awaited_token() -> str:
    return token()


GOOD: dict[str, Callable[[Secured], Settings]] = {
    "TLS": lambda kafka: kafka.settings("SSL"),
    "TLS with a certificate, PEM": lambda kafka: kafka.settings(
        "MUTUAL", ssl_keystore_location=str(kafka.client.keystore)
    ),
    "TLS with a certificate, PKCS12": lambda kafka: {
        "bootstrap_servers": kafka.addresses["MUTUAL"],
        "security_protocol": "SSL",
        "ssl_truststore_location": str(kafka.client.trust_p12),
        "ssl_truststore_password": Signed.PASSWORD,
        "ssl_keystore_location": str(kafka.client.p12),
        "ssl_keystore_password": Signed.PASSWORD,
    },
    "PLAIN": lambda kafka: kafka.as_user("SASL_SSL", "PLAIN"),
    "PLAIN, unencrypted": lambda kafka: kafka.as_user(
        "SASL_PLAINTEXT", "PLAIN", sasl_allow_unencrypted=True
    ),
    "SCRAM-SHA-256": lambda kafka: kafka.as_user("SASL_SSL", "SCRAM-SHA-256"),
    "SCRAM-SHA-512": lambda kafka: kafka.as_user("SASL_SSL", "SCRAM-SHA-512"),
    "SCRAM-SHA-256, unencrypted": lambda kafka: kafka.as_user("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    "OAUTHBEARER": tokens,
    "OAUTHBEARER, awaited": lambda kafka: {
        **tokens(kafka),
        "sasl_oauth_token_provider": awaited_token,
    },
}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("way", list(GOOD))
def test_produce_consume_commit_and_administer(
    way: str, protocol: Any, secured_kafka: Secured
) -> None:
    settings = GOOD[way](secured_kafka)
    topic, group = f"t-{uuid.uuid4().hex}", f"g-{uuid.uuid4().hex}"
    place = TopicPartition(topic, 0)
    with AdminClient(**settings) as admin:
        admin.create_topics([NewTopic(topic, 1)])
        with Producer(**settings) as producer:
            for number in range(RECORDS):
                producer.send(topic, b"%d" % number)
        with Consumer(
            topic,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            **settings,
        ) as consumer:
            seen: list[object] = []
            while len(seen) < RECORDS:
                seen += [r.value for found in consumer.poll(1_000).values() for r in found]
            consumer.commit()
        assert seen == [b"%d" % number for number in range(RECORDS)]
        assert admin.list_group_offsets(group)[place].offset == RECORDS
    own = {name.replace("_", "."): value for name, value in settings.items()}
    reader = RangeReader(settings["bootstrap_servers"], own)
    assert sum(batch.num_rows for batch in reader.read(topic, 0, 0, RECORDS)) == RECORDS


BAD: dict[str, tuple[Callable[[Secured], Settings], type[KafkaError], str]] = {
    "wrong password, SCRAM": (
        lambda kafka: kafka.as_user("SASL_SSL", "SCRAM-SHA-256", sasl_password="other"),
        AuthenticationError,
        "SASL_AUTHENTICATION_FAILED: localhost.* SCRAM-SHA-256 as user 'alice': .*invalid cred",
    ),
    "wrong password, PLAIN": (
        lambda kafka: kafka.as_user("SASL_SSL", "PLAIN", sasl_password="other"),
        AuthenticationError,
        "SASL_AUTHENTICATION_FAILED: .*PLAIN as user 'alice': .*Invalid username or password",
    ),
    "expired token": (
        lambda kafka: {**tokens(kafka), "sasl_oauth_token_provider": lambda: token(-600)},
        AuthenticationError,
        "SASL_AUTHENTICATION_FAILED: .*invalid_token",
    ),
    "mechanism that is not enabled": (
        lambda kafka: kafka.as_user("SASL_PLAINTEXT", "SCRAM-SHA-512"),
        AuthenticationError,
        "SCRAM-SHA-512 is not enabled at this listener; enabled are: PLAIN, SCRAM-SHA-256",
    ),
    "SASL where there is none": (
        lambda kafka: kafka.as_user("SSL", "PLAIN", security_protocol="SASL_SSL"),
        AuthenticationError,
        "the listener has no SASL",
    ),
    "expired certificate": (lambda kafka: kafka.settings("EXPIRED"), TlsError, "has expired"),
    "name that does not match": (
        lambda kafka: kafka.settings("ELSEWHERE"),
        TlsError,
        "certificate is for another host: .*'localhost'",
    ),
    "unknown authority": (
        lambda kafka: kafka.settings("SSL", ssl_ca_location=None),
        TlsError,
        "no trusted authority has signed .*set ssl.ca.location",
    ),
    "no certificate of the client": (
        lambda kafka: kafka.settings("MUTUAL"),
        TlsError,
        "the broker requires a trusted client certificate",
    ),
    "TLS where there is none": (
        lambda kafka: kafka.settings("SSL", bootstrap_servers=kafka.bootstrap_servers),
        TlsError,
        "the listener has no TLS",
    ),
    "TLS where there is SASL alone": (
        lambda kafka: kafka.settings("SSL", bootstrap_servers=kafka.addresses["SASL_PLAINTEXT"]),
        TlsError,
        "the listener has no TLS",
    ),
}
NEVER_MS = 3_600_000
# The TLS of asyncio closes the connection of such a client and does not tell it why.
NOT_TOLD = "no certificate of the client"


@pytest.mark.parametrize("way", list(BAD))
def test_a_refusal_is_raised_at_once_and_again(way: str, secured_kafka: Secured) -> None:
    """Time-outs are an hour: none of the calls waits for one."""
    if way == NOT_TOLD and isinstance(secured_kafka, SecuredEmbedded):
        with (
            AdminClient(**BAD[way][0](secured_kafka), default_api_timeout_ms=2_000) as admin,
            pytest.raises(BrokerUnavailableError, match="closed the connection"),
        ):
            admin.list_topics()
        return
    settings, kind, why = BAD[way][0](secured_kafka), *BAD[way][1:]
    waiting = {**settings, "default_api_timeout_ms": NEVER_MS}
    place = TopicPartition("t", 0)

    def twice(call: Callable[[], object]) -> None:
        for _ in range(2):
            with pytest.raises(kind, match=why) as caught:
                call()
            assert not caught.value.retriable
            assert caught.value.fatal

    with AdminClient(**waiting) as admin:
        twice(admin.list_topics)
    with Producer(**settings, max_block_ms=NEVER_MS) as producer:
        twice(lambda: producer.send("t", b"value"))
    for protocol in ("classic", "consumer"):
        with Consumer("t", group_id="g", group_protocol=protocol, **waiting) as consumer:
            twice(lambda: consumer.poll(NEVER_MS))
            twice(lambda: consumer.end_offsets([place]))
            twice(lambda: next(iter(consumer)))
    own = {name.replace("_", "."): value for name, value in waiting.items() if value is not None}
    reader = RangeReader(settings["bootstrap_servers"], own)
    twice(lambda: list(reader.read("t", 0, 0, 1)))


def test_a_listener_with_sasl_that_is_not_asked_for(secured_kafka: Secured) -> None:
    """It closes the connection without a word; so does a broker that ends, so it is waited."""
    with (
        AdminClient(
            bootstrap_servers=secured_kafka.addresses["SASL_PLAINTEXT"],
            default_api_timeout_ms=3_000,
        ) as admin,
        pytest.raises(BrokerUnavailableError, match="a listener that requires SASL does this"),
    ):
        admin.list_topics()


def test_a_session_is_renewed_on_the_same_connection(
    secured_kafka: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-368: the listener ends sessions after two seconds, and closes what goes on beyond."""
    begun: list[object] = []
    exchange = ScramAuthenticator.exchange

    def counted(self: ScramAuthenticator, host: str) -> Any:
        begun.append(self)
        return exchange(self, host)

    monkeypatch.setattr(ScramAuthenticator, "exchange", counted)
    settings = secured_kafka.as_user("SHORT", "SCRAM-SHA-512", reconnect_backoff_ms=NEVER_MS)
    topic = f"t-{uuid.uuid4().hex}"
    with AdminClient(**settings) as admin, Producer(**settings) as producer:
        admin.create_topics([NewTopic(topic, 1)])
        producer.send(topic, b"first").result(60)
        at_first = len(begun)
        # A connection that was closed would not be opened again within the hour.
        while len(begun) < at_first + 8:
            producer.send(topic, b"more").result(60)
            assert topic in admin.list_topics()
    assert SESSION_MS < NEVER_MS


def test_a_port_where_nobody_listens_is_no_refusal(secured_kafka: Secured) -> None:
    (port,) = free_ports(1)
    settings = secured_kafka.settings("SSL", bootstrap_servers=f"localhost:{port}")
    with (
        AdminClient(**settings, default_api_timeout_ms=500) as admin,
        pytest.raises(BrokerUnavailableError, match="refused"),
    ):
        admin.list_topics()
