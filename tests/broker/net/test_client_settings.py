"""Clients of each kind accept the settings of a secured broker unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient as ForeignAdmin

from kohort import AdminClient
from kohort.broker import EmbeddedBroker, Security
from kohort.cli.command_config import read_command_config
from kohort.errors import ConfigError
from tests.real_kafka.secured import token

USERS = {"alice": "alice-secret"}
ALL = ("SCRAM-SHA-512", "OAUTHBEARER", "SCRAM-SHA-256", "PLAIN")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_clients_log_in_without_tls(mechanism: str, tmp_path: Path) -> None:
    security = Security("SASL_PLAINTEXT", users=USERS, mechanisms=(mechanism,))
    with EmbeddedBroker(security=security) as broker:
        security.write_settings(tmp_path, broker.bootstrap_servers)
        file = tmp_path / "alice.properties"
        file.write_text(broker.java_properties())
        for settings in (broker.client_settings(), read_command_config(file)):
            with AdminClient.from_config(settings) as admin:
                assert not admin.list_topics()
        lines = (tmp_path / "alice.conf").read_text().splitlines()
        written = dict(line.split("=", 1) for line in lines)
        assert written == broker.librdkafka_settings()
        assert ForeignAdmin({**written}).list_topics(timeout=30).brokers


def test_tokens_need_a_provider_and_no_user() -> None:
    security = Security("SASL_PLAINTEXT", users=USERS, mechanisms=("OAUTHBEARER",))
    with EmbeddedBroker(security=security) as broker:
        settings = {**broker.client_settings(), "sasl.oauth.token.provider": token}
        with AdminClient.from_config(settings) as admin:
            assert not admin.list_topics()


@pytest.mark.parametrize(
    ("enabled", "chosen"),
    [
        (ALL, "SCRAM-SHA-512"),
        (("SCRAM-SHA-256", "PLAIN"), "SCRAM-SHA-256"),
        (("OAUTHBEARER", "PLAIN"), "PLAIN"),
    ],
)
def test_the_strongest_mechanism_is_chosen(enabled: tuple[str, ...], chosen: str) -> None:
    security = Security("SASL_PLAINTEXT", users=USERS, mechanisms=enabled)
    assert security.client_settings()["sasl.mechanism"] == chosen
    assert security.java_settings()["sasl.mechanism"] == chosen


def test_a_mechanism_that_is_not_enabled_has_no_settings() -> None:
    security = Security("SASL_PLAINTEXT", users=USERS, mechanisms=("PLAIN",))
    with pytest.raises(ConfigError, match="'SCRAM-SHA-256' is not among"):
        security.client_settings(mechanism="SCRAM-SHA-256")
