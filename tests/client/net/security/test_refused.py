"""A refusal by a secured cluster is one error, which each kind of client raises at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import (
    AdminClient,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    KafkaError,
    Producer,
)
from kohort.client import AsyncAdminClient
from kohort.errors import AuthenticationError, TlsError
from kohort.spark.source.datasource import KohortDataSource
from kohort.spark.source.fetch.ranges import RangeReader
from tests.cli.running import told
from tests.real_kafka.secured import Secured, SecuredEmbedded

# No call waits for a timeout.
NEVER_MS = 3_600_000
Settings = dict[str, Any]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with SecuredEmbedded(tmp_path_factory.mktemp("secured")) as brokers:
        yield brokers


WAYS: dict[str, tuple[Callable[[Secured], Settings], type[KafkaError], str]] = {
    "wrong password": (
        lambda at: at.as_user("SASL_SSL", "SCRAM-SHA-256", sasl_password="other"),
        AuthenticationError,
        "SASL_AUTHENTICATION_FAILED: .* SCRAM-SHA-256 as user 'alice': .*invalid cred",
    ),
    "unknown user": (
        lambda at: at.as_user("SASL_SSL", "PLAIN", sasl_username="mallory"),
        AuthenticationError,
        "SASL_AUTHENTICATION_FAILED: .*PLAIN as user 'mallory': .*Invalid username or password",
    ),
    "mechanism that is not enabled": (
        lambda at: at.as_user("SASL_PLAINTEXT", "SCRAM-SHA-512"),
        AuthenticationError,
        "SCRAM-SHA-512 is not enabled at this listener; enabled are: PLAIN, SCRAM-SHA-256",
    ),
    "expired certificate": (lambda at: at.settings("EXPIRED"), TlsError, "has expired"),
    "certificate that no authority has signed": (
        lambda at: {
            name: value for name, value in at.settings("SSL").items() if name != "ssl_ca_location"
        },
        TlsError,
        "no trusted authority has signed .*set ssl.ca.location",
    ),
    "name that does not match": (
        lambda at: at.settings("ELSEWHERE"),
        TlsError,
        "certificate is for another host: .*'localhost'",
    ),
    "TLS where there is none": (
        lambda at: at.settings("SSL", bootstrap_servers=at.bootstrap_servers),
        TlsError,
        "the listener has no TLS: set security.protocol",
    ),
    "TLS where there is SASL alone": (
        lambda at: at.settings("SSL", bootstrap_servers=at.addresses["SASL_PLAINTEXT"]),
        TlsError,
        "the listener has no TLS: set security.protocol",
    ),
    "no TLS where there is some": (
        lambda at: {"bootstrap_servers": at.addresses["SSL"]},
        TlsError,
        "the listener has TLS: set security.protocol",
    ),
    "SASL alone where there is TLS": (
        lambda at: at.as_user(
            "SASL_PLAINTEXT", "SCRAM-SHA-256", bootstrap_servers=at.addresses["SASL_SSL"]
        ),
        TlsError,
        "the listener has TLS: set security.protocol",
    ),
}


def dotted(settings: Settings, prefix: str = "") -> dict[str, str]:
    return {prefix + name.replace("_", "."): str(value) for name, value in settings.items()}


@pytest.mark.parametrize("way", list(WAYS))
def test_each_client_raises_it_at_once(way: str, secured: Secured) -> None:
    make, kind, why = WAYS[way]
    settings = make(secured)
    waiting = {**settings, "default_api_timeout_ms": NEVER_MS}

    def refused(call: Callable[[], object]) -> None:
        with pytest.raises(kind, match=why) as caught:
            call()
        assert not caught.value.retriable
        assert caught.value.fatal

    with AdminClient(**waiting) as admin:
        refused(admin.list_topics)
    with Producer(**settings, max_block_ms=NEVER_MS) as producer:
        refused(lambda: producer.send("t", b"value"))
    for protocol in ("classic", "consumer"):
        group: Settings = {"group_id": "g", "group_protocol": protocol}
        with Consumer("t", **group, **waiting) as consumer:
            refused(lambda: consumer.poll(NEVER_MS))
    refused(lambda: asyncio.run(admin_on_a_loop(waiting)))
    refused(lambda: asyncio.run(producer_on_a_loop(settings)))
    refused(lambda: asyncio.run(consumer_on_a_loop(waiting)))
    reader = RangeReader(settings["bootstrap_servers"], dotted(waiting))
    refused(lambda: list(reader.read("t", 0, 0, 1)))


async def admin_on_a_loop(settings: Settings) -> None:
    async with AsyncAdminClient(**settings) as admin:
        await admin.list_topics()


async def producer_on_a_loop(settings: Settings) -> None:
    async with AsyncProducer(**settings, max_block_ms=NEVER_MS) as producer:
        await (await producer.send("t", b"value"))


async def consumer_on_a_loop(settings: Settings) -> None:
    async with AsyncConsumer("t", group_id="g", **settings) as consumer:
        await consumer.poll(NEVER_MS)


@pytest.mark.parametrize("way", list(WAYS))
def test_a_command_ends_with_it(way: str, secured: Secured, tmp_path: Path) -> None:
    make, _, why = WAYS[way]
    config = dotted(make(secured))
    servers = config.pop("bootstrap.servers")
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    line = told("topics", "list", "-b", servers, "--command-config", str(file), code=1)
    assert re.search(why, line)
    assert "Traceback" not in line


@pytest.mark.parametrize("way", list(WAYS))
def test_the_driver_of_spark_raises_it(way: str, secured: Secured) -> None:
    make, kind, why = WAYS[way]
    options = {
        **dotted(make(secured), "kafka."),
        "subscribe": "t",
        "kafka.default.api.timeout.ms": str(NEVER_MS),
    }
    source = KohortDataSource(options)
    batch = source.reader(None)  # type: ignore[arg-type]  # no schema
    with pytest.raises(kind, match=why):
        batch.partitions()
