"""ACLs through the admin client: created, found, deleted, and enforced."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kohort import AdminClient, Producer, TopicPartition
from kohort.broker import EmbeddedBroker, Security
from kohort.client import AclBinding, AclBindingFilter, AsyncAdminClient
from kohort.errors import KafkaError, PartialFailureError
from tests.client.cutting_proxy import CuttingProxy
from tests.client.loops import on_a_loop

DELETE_ACLS = 31
BOB = "User:bob"
WRITES = AclBinding(resource_type="topic", name="flights", principal=BOB, operation="write")
READS = AclBinding(
    resource_type="topic", name="fl", pattern_type="prefixed", principal=BOB, operation="read"
)
DENIED = AclBinding(
    resource_type="group",
    name="*",
    principal="User:*",
    operation="all",
    permission_type="deny",
    host="10.0.0.1",
)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    users = {"root": "root-secret", "bob": "bob-secret"}
    security = Security("SASL_PLAINTEXT", users=users, super_users=["root"])
    with EmbeddedBroker(security=security) as started:
        started.create_topic("flights", 1)
        yield started


@pytest.fixture
def admin(broker: EmbeddedBroker) -> Iterator[AdminClient]:
    with AdminClient.from_config(broker.client_settings("root")) as client:
        yield client


def test_an_acl_allows_what_it_says(broker: EmbeddedBroker, admin: AdminClient) -> None:
    admin.create_acls([WRITES])
    with Producer.from_config(broker.client_settings("bob")) as producer:
        assert producer.send("flights", b"v").result(60).offset == 0
    assert admin.delete_acls([AclBindingFilter(principal=BOB)]) == {
        AclBindingFilter(principal=BOB): [WRITES]
    }
    with (
        Producer.from_config(broker.client_settings("bob")) as producer,
        pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"),
    ):
        producer.send("flights", b"v").result(60)


def test_filters_find_what_they_mean(admin: AdminClient) -> None:
    admin.create_acls([WRITES, READS, DENIED, WRITES])
    assert admin.describe_acls() == sorted([WRITES, READS, DENIED])
    assert admin.describe_acls(AclBindingFilter(name="flights")) == [WRITES]
    matching = AclBindingFilter(resource_type="topic", name="flights", pattern_type="match")
    assert admin.describe_acls(matching) == sorted([WRITES, READS])
    assert admin.describe_acls(AclBindingFilter(permission_type="deny")) == [DENIED]
    found = admin.delete_acls([matching, AclBindingFilter(operation="alter")])
    assert found == {matching: sorted([WRITES, READS]), AclBindingFilter(operation="alter"): []}
    assert admin.describe_acls() == [DENIED]


def test_one_that_cannot_be_does_not_keep_the_others_away(admin: AdminClient) -> None:
    wrong = AclBinding(resource_type="topic", name="t", principal="bob", operation="read")
    with pytest.raises(PartialFailureError) as caught:
        admin.create_acls([wrong, WRITES])
    assert set(caught.value.errors) == {wrong}
    assert "topic t literal bob * read allow" in str(caught.value)
    assert admin.describe_acls() == [WRITES]


def test_a_user_without_the_right_is_told_which(broker: EmbeddedBroker) -> None:
    with AdminClient.from_config(broker.client_settings("bob")) as bob:
        with pytest.raises(KafkaError, match="user to DESCRIBE this cluster"):
            bob.describe_acls()
        with pytest.raises(PartialFailureError, match="user to ALTER this cluster"):
            bob.create_acls([WRITES])
        with pytest.raises(PartialFailureError, match="user to ALTER this cluster"):
            bob.delete_acls([AclBindingFilter()])


def test_a_topic_that_is_not_shown_may_be_there(broker: EmbeddedBroker) -> None:
    wanted = {TopicPartition("flights", 0): 0}
    hidden = "flights-0: the topic does not exist, or the client's user may not DESCRIBE it"
    with (
        AdminClient.from_config(broker.client_settings("bob")) as bob,
        pytest.raises(PartialFailureError, match=hidden),
    ):
        bob.delete_records(wanted)


def test_a_broker_without_acls_says_so() -> None:
    with (
        EmbeddedBroker() as broker,
        AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin,
        pytest.raises(KafkaError, match="SECURITY_DISABLED"),
    ):
        admin.describe_acls()


@on_a_loop
async def test_on_a_loop(broker: EmbeddedBroker) -> None:
    async with AsyncAdminClient.from_config(broker.client_settings("root")) as admin:
        await admin.create_acls([WRITES])
        assert await admin.describe_acls() == [WRITES]
        found = await admin.delete_acls([AclBindingFilter()])
        assert found == {AclBindingFilter(): [WRITES]}


def test_a_lost_answer_of_deleting_is_told(
    broker: EmbeddedBroker, admin: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The second attempt finds nothing, because the first has deleted it."""
    admin.create_acls([WRITES])
    settings = broker.client_settings("root")
    with CuttingProxy(settings["bootstrap.servers"], lambda number: number == 1) as proxy:
        proxy.loses = frozenset({DELETE_ACLS})
        through = {**settings, "bootstrap.servers": proxy.bootstrap_servers}
        with AdminClient.from_config(through) as cut:
            assert cut.delete_acls([AclBindingFilter()]) == {AclBindingFilter(): []}
    assert "an earlier attempt may have deleted ACLs" in caplog.text
    assert [each.levelno for each in caplog.records if "delete_acls" in each.getMessage()] == [
        logging.WARNING
    ]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"operation": "READ"}, r"operation is 'READ' \(str\); it can be all, read"),
        ({"operation": "any"}, r"operation is 'any' \(str\); it can be all"),
        ({"pattern_type": "match"}, "it can be literal, prefixed"),
        ({"resource_type": "broker"}, "it can be topic, group, cluster"),
        ({"permission_type": None}, "it can be deny, allow"),
        ({"name": ""}, "name"),
    ],
)
def test_what_is_no_acl_is_refused(changed: dict[str, Any], why: str) -> None:
    given: dict[str, Any] = {"resource_type": "topic", "name": "t", "principal": BOB}
    with pytest.raises(ValueError, match=why):
        AclBinding(**{**given, "operation": "read", **changed})
