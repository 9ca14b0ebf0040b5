"""Kerberos: tickets of a private KDC at an Apache Kafka, and what is said when there are none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kohort import AdminClient, Consumer, Producer
from kohort.client import NewTopic
from kohort.client.config.definitions import ConsumerConfig, make_from_kafka
from kohort.client.net.security.context import security_of
from kohort.errors import AuthenticationError, KafkaError
from kohort.spark.source.fetch.range_connection import BlockingConnection
from tests.real_kafka.kerberos import REALM, Kdc, KerberosKafka
from tests.real_kafka.secured import USER

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"


class Realm(NamedTuple):
    """A KDC, a broker that takes its tickets, and the key of a user."""

    kdc: Kdc
    address: str
    keytab: Path


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    folder = tmp_path_factory.mktemp("kerberos")
    with Kdc(folder / "kdc") as kdc, KerberosKafka(folder / "kafka", kdc) as kafka:
        yield Realm(kdc, kafka.addresses["KERBEROS"], kdc.add(USER))


@pytest.fixture
def realm(started: Realm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Realm:
    """The realm, in whose environment this process has no ticket."""
    for name, value in started.kdc.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/none")
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", f"FILE:{tmp_path}/no-keys")
    return started


def settings(realm: Realm, jaas: str = "", **others: str) -> dict[str, str]:
    found = {
        "bootstrap.servers": realm.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        **others,
    }
    return {**found, "sasl.jaas.config": f"{MODULE} {jaas};"} if jaas else found


def keys(realm: Realm, principal: str = USER) -> str:
    keytab = f'useKeyTab=true storeKey=true keyTab="{realm.keytab}"'
    return f'{keytab} principal="{principal}@{REALM}"'


def uses(given: dict[str, str], topic: str) -> None:
    """Produce, and read in a group."""
    with AdminClient.from_config(given) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    with Producer.from_config(given) as producer:
        assert producer.send(topic, b"value").result(60).offset == 0
    reading = {**given, "group.id": topic, "auto.offset.reset": "earliest"}
    with Consumer.from_config(reading, topic) as consumer:
        assert next(consumer).value == b"value"
        consumer.commit()


def test_by_a_key(realm: Realm) -> None:
    uses(settings(realm, keys(realm)), "by-key")


def test_by_the_ticket_cache_of_the_environment(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.kdc.log_in(realm.keytab, USER)}")
    uses(settings(realm), "by-cache")


def test_by_a_ticket_cache_that_is_named(realm: Realm) -> None:
    cache = realm.kdc.log_in(realm.keytab, USER)
    uses(settings(realm, f'useTicketCache=true ticketCache="FILE:{cache}"'), "by-name")


def test_readers_of_ranges_have_tickets_too(realm: Realm) -> None:
    host, _, port = realm.address.rpartition(":")
    security = security_of(make_from_kafka(ConsumerConfig, settings(realm, keys(realm))))
    BlockingConnection(host, int(port), "test", 60_000, security).close()


def refusal(given: dict[str, str]) -> KafkaError:
    with AdminClient.from_config({**given, "default.api.timeout.ms": "20000"}) as admin:
        with pytest.raises(KafkaError) as caught:
            admin.list_topics()
        return caught.value


def test_without_a_ticket_it_says_how_to_get_one(realm: Realm) -> None:
    error = refusal(settings(realm))
    assert isinstance(error, AuthenticationError)
    assert "run kinit, or set useKeyTab=true, keyTab and principal" in str(error)


def test_a_service_that_the_kdc_does_not_know(realm: Realm) -> None:
    error = refusal(settings(realm, keys(realm), **{"sasl.kerberos.service.name": "other"}))
    assert isinstance(error, AuthenticationError)
    assert "other/localhost: the KDC does not know the broker's service" in str(error)


def test_a_principal_that_the_key_tab_does_not_have(realm: Realm) -> None:
    error = refusal(settings(realm, keys(realm, "mallory")))
    assert isinstance(error, AuthenticationError)
    assert f"the key tab {realm.keytab} cannot be read, or has no key of" in str(error)


def test_a_key_tab_that_is_not_there(realm: Realm) -> None:
    given = settings(realm, f'useKeyTab=true keyTab="/nowhere" principal="{USER}"')
    error = refusal(given)
    assert isinstance(error, AuthenticationError)
    assert "the key tab /nowhere cannot be read, or has no key of" in str(error)


def test_a_kdc_that_is_not_there_is_asked_again(
    realm: Realm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = realm.kdc.config.read_text()
    elsewhere = tmp_path / "krb5.conf"
    elsewhere.write_text(re.sub(r"kdc = 127\.0\.0\.1:\d+", "kdc = 127.0.0.1:1", text))
    monkeypatch.setenv("KRB5_CONFIG", str(elsewhere))
    given = {**settings(realm, keys(realm)), "default.api.timeout.ms": "2000"}
    with AdminClient.from_config(given) as admin, pytest.raises(KafkaError) as caught:
        admin.list_topics()
    assert not isinstance(caught.value, AuthenticationError)
    assert "no KDC can be reached" in str(caught.value)
