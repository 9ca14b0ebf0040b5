"""ACLs by the admin client, on Apache Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort import AdminClient
from kohort.client import AclBinding, AclBindingFilter
from kohort.errors import KafkaError, PartialFailureError
from tests.broker.processes import eventually
from tests.real_kafka.secured import (
    PASSWORD,
    POWERLESS,
    POWERLESS_PASSWORD,
    USER,
    SecuredKafka,
)

WHO = f"User:{POWERLESS}"
READS = AclBinding(resource_type="topic", name="flights", principal=WHO, operation="read")
GROUPS = AclBinding(
    resource_type="group", name="de", pattern_type="prefixed", principal=WHO, operation="all"
)
DENIED = AclBinding(
    resource_type="cluster",
    name="kafka-cluster",
    principal=WHO,
    operation="idempotent_write",
    permission_type="deny",
    host="10.0.0.1",
)


def settings(address: str, user: str, password: str) -> dict[str, str]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.allow.unencrypted": "true",
        "sasl.username": user,
        "sasl.password": password,
    }


def test_acls_are_created_found_and_deleted(tmp_path: Path) -> None:
    with SecuredKafka(tmp_path) as kafka:
        address = kafka.addresses["SASL_PLAINTEXT"]
        own = AclBindingFilter(principal=WHO)
        with AdminClient.from_config(settings(address, USER, PASSWORD)) as admin:
            admin.create_acls([READS, GROUPS, DENIED])
            wanted = sorted([READS, GROUPS, DENIED])
            eventually(lambda: admin.describe_acls(own) == wanted, "the ACLs are there")
            match = AclBindingFilter(resource_type="group", name="departures", pattern_type="match")
            assert GROUPS in admin.describe_acls(match)
            wrong = AclBinding(resource_type="cluster", name="c", principal=WHO, operation="alter")
            with pytest.raises(PartialFailureError, match="INVALID_REQUEST") as caught:
                admin.create_acls([wrong, READS])
            assert set(caught.value.errors) == {wrong}
            assert admin.delete_acls([own]) == {own: wanted}
            eventually(lambda: admin.describe_acls(own) == [], "the ACLs are gone")
        with (
            AdminClient.from_config(settings(address, POWERLESS, POWERLESS_PASSWORD)) as admin,
            pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"),
        ):
            admin.describe_acls()
