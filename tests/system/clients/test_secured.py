"""Java's tools and librdkafka reach a secured embedded broker with the settings that it gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kohort.broker import EmbeddedBroker, Security
from tests.real_kafka.broker import RealKafka

PASSWORD = 'se"cret,=\\x'
WAYS: dict[str, tuple[dict[str, Any], str | None]] = {
    "SSL": ({"protocol": "SSL"}, None),
    "SSL with certificates": ({"protocol": "SSL", "client_certificates": True}, None),
    **{
        f"{protocol} {mechanism}": (
            {"protocol": protocol, "users": {"alice": PASSWORD}},
            mechanism,
        )
        for protocol in ("SASL_SSL", "SASL_PLAINTEXT")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    },
}


@pytest.mark.parametrize("way", list(WAYS))
def test_foreign_clients_log_in(way: str, real_kafka: RealKafka, tmp_path: Path) -> None:
    """`real_kafka` only runs the tool."""
    given, mechanism = WAYS[way]
    with EmbeddedBroker(security=Security(**given)) as broker:
        broker.create_topic("hello", 1)
        settings: dict[str, Any] = {**broker.librdkafka_settings(mechanism=mechanism)}
        admin = AdminClient(settings)
        assert "hello" in admin.list_topics(timeout=30).topics
        config = tmp_path / "client.properties"
        config.write_text(broker.java_properties(mechanism=mechanism))
        where = ["--bootstrap-server", broker.bootstrap_servers, "--command-config", str(config)]
        tool = "org.apache.kafka.tools.TopicCommand"
        assert "hello" in real_kafka.run_tool(tool, *where, "--list").split()


def test_kafkas_own_tool_changes_users(real_kafka: RealKafka, tmp_path: Path) -> None:
    """`kafka-configs --entity-type users`; `real_kafka` only runs the tool."""
    security = Security("SASL_SSL", users={"alice": PASSWORD})
    with EmbeddedBroker(security=security) as broker:
        config = tmp_path / "client.properties"
        config.write_text(broker.java_properties())
        where = ["--bootstrap-server", broker.bootstrap_servers, "--command-config", str(config)]
        bob = ["--entity-type", "users", "--entity-name", "bob"]

        def configs(*more: str) -> str:
            return real_kafka.run_tool("kafka.admin.ConfigCommand", *where, *bob, *more)

        added = "SCRAM-SHA-256=[iterations=8192,password=bob-secret]"
        assert "Completed updating config for user bob" in configs("--alter", "--add-config", added)
        assert "SCRAM-SHA-256=iterations=8192" in configs("--describe")
        as_bob: dict[str, Any] = {
            **broker.librdkafka_settings(mechanism="SCRAM-SHA-256"),
            "sasl.username": "bob",
            "sasl.password": "bob-secret",
        }
        assert AdminClient(as_bob).list_topics(timeout=30).brokers
        configs("--alter", "--delete-config", "SCRAM-SHA-256")
        assert "SCRAM" not in configs("--describe")
        with pytest.raises(KafkaException):
            AdminClient(as_bob).list_topics(timeout=3)
