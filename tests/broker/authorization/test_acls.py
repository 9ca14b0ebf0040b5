"""ACLs of the embedded broker: decisions, and their effects on clients."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from hypothesis import given
from hypothesis import strategies as st

from kohort import AdminClient as OurAdmin
from kohort import Consumer, Producer
from kohort.broker import Acl, EmbeddedBroker, Operation, Pattern, Permission, Resource, Security
from kohort.broker.authorization.acls import CLUSTER, AclFilter, Acls, principal_of
from kohort.broker.authorization.rights_needed import RULES
from kohort.broker.dispatch import SERVED
from kohort.broker.log.directory import DataDirectoryError
from kohort.broker.log.storage import Storage
from kohort.client import NewTopic
from kohort.errors import ConfigError, ErrorCode, KafkaError
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire import apis
from kohort.wire.codec.schema import ZERO_UUID
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.log.batches import batch
from tests.broker.peer import FETCH_BY_NAME, Peer, fetch_request, produce_request
from tests.real_kafka.logged_in import UserPeer

USERS = {"root": "root-secret", "bob": "bob-secret"}
WAIT_S = 60
BOB, HERE = "User:bob", "127.0.0.1"
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
TOPIC = Resource.TOPIC
DENY = Permission.DENY


def decided(tmp_path: Path, *acls: Acl) -> Acls:
    found = Acls(["User:root"], tmp_path / "acls.json", Storage())
    found.change(added=acls)
    return found


# ------------------------------------------------------------------------------------- decisions


def bobs(
    operation: Operation,
    name: str,
    pattern: Pattern = Pattern.LITERAL,
    permission: Permission = Permission.ALLOW,
    *,
    principal: str = BOB,
    host: str = "*",
) -> Acl:
    return Acl(principal, operation, TOPIC, name, pattern, permission, host)


PREFIX = Pattern.PREFIXED
# The ACLs, the operation on topic "flights", and whether it is allowed.
CASES: dict[str, tuple[list[Acl], Operation, bool]] = {
    "nothing": ([], READ, False),
    "by its name": ([bobs(READ, "flights")], READ, True),
    "another name": ([bobs(READ, "flight")], READ, False),
    "by a prefix": ([bobs(READ, "fl", PREFIX)], READ, True),
    "a prefix that is longer": ([bobs(READ, "flights-", PREFIX)], READ, False),
    "any name": ([bobs(READ, "*")], READ, True),
    "a star as a prefix is a star": ([bobs(READ, "*", PREFIX)], READ, False),
    "all operations": ([bobs(ALL, "flights")], WRITE, True),
    "another operation": ([bobs(READ, "flights")], WRITE, False),
    "reading implies describing": ([bobs(READ, "flights")], DESCRIBE, True),
    "creating does not": ([bobs(Operation.CREATE, "flights")], DESCRIBE, False),
    "altering settings implies seeing them": (
        [bobs(Operation.ALTER_CONFIGS, "flights")],
        Operation.DESCRIBE_CONFIGS,
        True,
    ),
    "denying goes before allowing": (
        [bobs(ALL, "flights"), bobs(READ, "fl", PREFIX, DENY)],
        READ,
        False,
    ),
    "denying another operation": (
        [bobs(ALL, "flights"), bobs(WRITE, "*", permission=DENY)],
        READ,
        True,
    ),
    "denying implies nothing": (
        [bobs(DESCRIBE, "flights"), bobs(READ, "*", permission=DENY)],
        DESCRIBE,
        True,
    ),
    "everybody": ([bobs(READ, "flights", principal="User:*")], READ, True),
    "another user": ([bobs(READ, "flights", principal="User:eve")], READ, False),
    "from here": ([bobs(READ, "flights", host=HERE)], READ, True),
    "from elsewhere": ([bobs(READ, "flights", host="10.0.0.1")], READ, False),
    "denied elsewhere": (
        [bobs(READ, "*"), bobs(READ, "*", permission=DENY, host="10.0.0.1")],
        READ,
        True,
    ),
    "a group of that name": ([Acl(BOB, READ, Resource.GROUP, "flights")], READ, False),
}


@pytest.mark.parametrize("case", list(CASES))
def test_decisions(case: str, tmp_path: Path) -> None:
    acls, operation, is_allowed = CASES[case]
    for order in (acls, acls[::-1]):
        decides = decided(tmp_path, *order)
        assert decides.allows(BOB, HERE, operation, TOPIC, "flights") is is_allowed
        assert decides.allows("User:root", HERE, operation, TOPIC, "flights")


# The ACLs, and whether the client may write to at least one topic.
ANY_CASES: dict[str, tuple[list[Acl], bool]] = {
    "nothing": ([], False),
    "one topic": ([bobs(WRITE, "t")], True),
    "a prefix": ([bobs(WRITE, "t", PREFIX)], True),
    "another operation": ([bobs(READ, "t")], False),
    "one that is denied": ([bobs(WRITE, "t"), bobs(ALL, "t", permission=DENY)], False),
    "one of two that is denied": (
        [bobs(WRITE, "t"), bobs(WRITE, "u"), bobs(ALL, "t", permission=DENY)],
        True,
    ),
    "a prefix but for one": ([bobs(WRITE, "t", PREFIX), bobs(WRITE, "t", permission=DENY)], True),
    "below a prefix that is denied": ([bobs(WRITE, "tu"), bobs(WRITE, "t", PREFIX, DENY)], False),
    "all but a prefix": ([bobs(WRITE, "*"), bobs(WRITE, "t", PREFIX, DENY)], True),
    "all denied": ([bobs(WRITE, "t", PREFIX), bobs(WRITE, "*", permission=DENY)], False),
}


@pytest.mark.parametrize("case", list(ANY_CASES))
def test_decisions_about_any_topic(case: str, tmp_path: Path) -> None:
    acls, is_allowed = ANY_CASES[case]
    assert decided(tmp_path, *acls).allows_any(BOB, HERE, WRITE, TOPIC) is is_allowed


def test_a_filter_by_match_finds_what_decides_about_a_resource(tmp_path: Path) -> None:
    there = [bobs(READ, "flights"), bobs(READ, "fl", PREFIX), bobs(READ, "*"), bobs(READ, "g")]
    decides = decided(tmp_path, *there)
    matching = AclFilter(name="flights", pattern=Pattern.MATCH)
    assert decides.found(matching) == sorted(there[:3])
    assert decides.found(AclFilter(name="flights")) == there[:1]
    assert decides.found(AclFilter(name="fl", pattern=PREFIX)) == [there[1]]
    assert decides.found(AclFilter(operation=WRITE)) == []


@given(acls=st.lists(st.sampled_from([each for acls, *_ in CASES.values() for each in acls])))
def test_an_acl_that_denies_takes_rights_only(
    acls: list[Acl], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Adding a denying ACL never allows more."""
    allowing = [each for each in acls if each.permission != DENY]
    every = decided(tmp_path_factory.mktemp("every"), *acls)
    fewer = decided(tmp_path_factory.mktemp("fewer"), *allowing)
    for operation in Operation:
        if every.allows(BOB, HERE, operation, TOPIC, "flights"):
            assert fewer.allows(BOB, HERE, operation, TOPIC, "flights")


def test_no_request_is_without_a_rule() -> None:
    """Requests that need no permission, or only filter their response, are listed here."""
    free = {"SaslHandshake", "SaslAuthenticate", "ApiVersions", "DescribeCluster"}
    filtered = {"ListGroups", "ListTransactions"}
    known = {cls.__name__.removesuffix("Request") for cls in RULES}
    served = {apis.request_class(key).__name__.removesuffix("Request") for key in SERVED}
    assert served == known | free | filtered
    assert not known & (free | filtered)


# ----------------------------------------------------------------------------------- with clients


def secured() -> Security:
    return Security("SASL_PLAINTEXT", users=USERS, mechanisms=["PLAIN"], super_users=["root"])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path, security=secured()) as started:
        started.create_topic("flights")
        yield started


def client(broker: EmbeddedBroker, user: str) -> dict[str, Any]:
    return {**broker.client_settings(user), "sasl.allow.unencrypted": True}


def test_rights_of_our_clients(broker: EmbeddedBroker) -> None:
    """Each call reports a missing permission, and succeeds once it is granted."""
    group, writing = Acl(BOB, READ, Resource.GROUP, "g"), bobs(WRITE, "flights")
    refused = pytest.raises(KafkaError, match=r"topic flights: .*WRITE this topic")
    with Producer.from_config(client(broker, "bob")) as producer, refused:
        producer.send("flights", b"one").result(WAIT_S)
    broker.create_acls([writing])
    with Producer.from_config(client(broker, "bob")) as producer:
        producer.send("flights", b"two").result(WAIT_S)
    settings = {**client(broker, "bob"), "group.id": "g", "auto.offset.reset": "earliest"}
    for missing, kind in ((group, "GROUP"), (bobs(READ, "flights"), "TOPIC")):
        with Consumer.from_config(settings) as consumer:
            consumer.subscribe(["flights"])
            with pytest.raises(KafkaError, match=rf"{kind}_AUTHORIZATION_FAILED: .*READ.* this"):
                read(consumer)
        broker.create_acls([missing])
    with Consumer.from_config(settings) as consumer:
        consumer.subscribe(["flights"])
        assert read(consumer) == [b"two"]
        consumer.commit()
    with OurAdmin.from_config(client(broker, "bob")) as admin:
        assert admin.list_topics() == {"flights"}
        assert [each.group_id for each in admin.list_groups()] == ["g"]
        with pytest.raises(KafkaError, match="CREATE this topic"):
            admin.create_topics([NewTopic("other", 1)])


def read(consumer: Consumer) -> list[Any]:
    while True:
        found = [each.value for records in consumer.poll(1_000).values() for each in records]
        if found:
            return found


def test_administration_by_librdkafka(broker: EmbeddedBroker) -> None:
    binding = AclBinding(
        ResourceType.TOPIC,
        "flights",
        ResourcePatternType.LITERAL,
        BOB,
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    every: Any = None  # a name, a principal, a host
    everything = AclBindingFilter(
        ResourceType.ANY,
        every,
        ResourcePatternType.ANY,
        every,
        every,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    admin = AdminClient({**broker.librdkafka_settings("root")})
    for future in admin.create_acls([binding]).values():
        future.result(WAIT_S)
    assert admin.describe_acls(everything).result(WAIT_S) == [binding]
    (future,) = admin.delete_acls([everything]).values()
    assert future.result(WAIT_S) == [binding]
    assert admin.describe_acls(everything).result(WAIT_S) == []
    powerless = AdminClient({**broker.librdkafka_settings("bob")})
    (future,) = powerless.delete_acls([everything]).values()
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        future.result(WAIT_S)


def test_they_outlast_the_broker(tmp_path: Path) -> None:
    acls = [bobs(READ, f"t{number}") for number in range(3)]
    with EmbeddedBroker(tmp_path, security=secured()) as broker:
        broker.create_acls(random.Random(3).sample(acls, 3))
    with (
        EmbeddedBroker(tmp_path, security=secured()) as broker,
        UserPeer(broker.bootstrap_servers, "root", USERS["root"]) as peer,
    ):
        assert peer.acls() == 3
    (tmp_path / "acls.json").write_text("[{]")
    with pytest.raises(DataDirectoryError, match="the ACLs, is damaged"):
        EmbeddedBroker(tmp_path, security=secured()).start()


def test_a_client_that_wants_no_answer_is_cut_off(broker: EmbeddedBroker) -> None:
    with UserPeer(broker.bootstrap_servers, "bob", USERS["bob"]) as peer:
        peer.send(produce_request(TopicPartition("flights", 0), batch(b"x"), acks=0), 12)
        assert peer.is_closed()


def test_the_subject_of_a_certificate_is_the_user(tmp_path: Path) -> None:
    security = Security("SSL", client_certificates=True, super_users=["CN=root"])
    with EmbeddedBroker(tmp_path, security=security) as broker:
        with OurAdmin.from_config(broker.client_settings("root")) as admin:
            admin.create_topics([NewTopic("flights", 1)])
        with OurAdmin.from_config(broker.client_settings("bob")) as admin:
            assert admin.list_topics() == frozenset()
            broker.create_acls([bobs(DESCRIBE, "flights", principal="User:CN=bob")])
            assert admin.list_topics() == {"flights"}


def as_bob(broker: EmbeddedBroker) -> UserPeer:
    return UserPeer(broker.bootstrap_servers, "bob", USERS["bob"])


def test_a_missing_topic_is_no_secret_for_one_who_may_describe_it(broker: EmbeddedBroker) -> None:
    """Without DELETE it is refused, unless the topic does not exist."""
    broker.create_acls([bobs(DESCRIBE, "flights"), bobs(DESCRIBE, "missing")])
    named = tuple(
        DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in ("flights", "missing", "hidden")
    )
    with as_bob(broker) as peer:
        answer = peer.ask(DeleteTopicsRequest(topics=named, timeout_ms=1_000), 6)
        codes = {each.name: each.error_code for each in answer.responses}
        assert codes == {
            "flights": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "hidden": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        }
        older = DeleteTopicsRequest(topic_names=("missing",), timeout_ms=1_000)
        (only,) = peer.ask(older, 5).responses
        assert only.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


ACTING = Acl(BOB, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER)


@pytest.mark.parametrize(("acl", "replica"), [(bobs(READ, "flights"), -1), (ACTING, 1)])
def test_a_fetch_of_a_replica_needs_the_right_of_brokers(
    acl: Acl, replica: int, broker: EmbeddedBroker
) -> None:
    broker.create_acls([acl])
    request = fetch_request(TopicPartition("flights", 0), 0, 0, 1_000)
    with as_bob(broker) as peer:
        codes = {each: fetched(peer, replace(request, replica_id=each)) for each in (-1, 1)}
    assert codes == {replica: 0, -replica: ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def fetched(peer: Peer, request: FetchRequest) -> int:
    return peer.ask(request, FETCH_BY_NAME).responses[0].partitions[0].error_code


def test_settings_of_a_new_topic_that_are_not_seen_are_an_empty_list(
    broker: EmbeddedBroker,
) -> None:
    broker.create_acls([bobs(Operation.CREATE, "new")])
    topic = CreatableTopic(
        name="new", num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    with as_bob(broker) as peer:
        (answer,) = peer.ask(CreateTopicsRequest(topics=(topic,)), 7).topics
        assert answer.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert answer.configs == ()


def test_names_of_subjects() -> None:
    subject = ((("countryName", "DE"),), (("organizationName", "A, B"),), (("commonName", "x"),))
    assert principal_of({"subject": subject}) == "User:CN=x,O=A\\, B,C=DE"
    common = {
        " bob ": "\\ bob\\ ",
        "#1=a;b": "\\#1\\=a\\;b",
        '"\\+<>': '\\"\\\\\\+\\<\\>',
        "a b": "a b",
    }
    for value, shown in common.items():
        assert principal_of({"subject": ((("commonName", value),),)}) == f"User:CN={shown}"
    assert principal_of(None) == principal_of({}) == "User:ANONYMOUS"


WRONG = {
    "no principal": Acl("bob", READ, TOPIC, "t"),
    "no name": Acl(BOB, READ, TOPIC, ""),
    "any operation": Acl(BOB, Operation.ANY, TOPIC, "t"),
    "a pattern of filters": Acl(BOB, READ, TOPIC, "t", Pattern.MATCH),
    "no permission": Acl(BOB, READ, TOPIC, "t", permission=Permission.ANY),
    "another cluster": Acl(BOB, READ, Resource.CLUSTER, "c"),
}


@pytest.mark.parametrize("why", list(WRONG))
def test_what_is_no_acl(why: str, broker: EmbeddedBroker) -> None:
    with pytest.raises(ConfigError, match="Acl"):
        broker.create_acls([Acl(BOB, READ, Resource.CLUSTER, CLUSTER), WRONG[why]])


def test_acls_need_super_users() -> None:
    with EmbeddedBroker() as broker, pytest.raises(ConfigError, match="super_users"):
        broker.create_acls([bobs(READ, "t")])
