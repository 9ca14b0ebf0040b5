"""ACLs decide as those of Apache Kafka do: the answers to all requests of a user with some."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest
from msgspec import NODEFAULT

from kohort.broker import EmbeddedBroker, Security
from kohort.broker.dispatch import SERVED
from kohort.types import TopicPartition
from kohort.values import defaults
from kohort.wire import apis
from kohort.wire.codec.schema import ZERO_UUID, FieldSpec, Message, Request, Struct, fields_of
from kohort.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponseTopic,
)
from kohort.wire.messages.producer_ids import InitProducerIdRequest
from kohort.wire.messages.topics import DeleteTopicsRequest
from tests.broker.log.batches import batch
from tests.broker.processes import eventually
from tests.real_kafka.alike import Asked, shown
from tests.real_kafka.logged_in import ANY, WAIT_S, UserPeer, acl
from tests.real_kafka.secured import (
    PASSWORD,
    POWERLESS,
    POWERLESS_PASSWORD,
    USER,
    SecuredKafka,
)

TOPIC, GROUP, CLUSTER, TRANSACTION = 2, 3, 4, 5
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = range(3, 9)
ALL, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 2, 9, 10, 11, 12
DENY, MATCH, LITERAL, PREFIXED, USER_KIND = 2, 2, 3, 4, 7
TOPICS, GROUPS, IDS = ("open", "closed", "nowhere"), ("ours", "theirs"), ("tx", "tx-2")
CLUSTER_NAME = "kafka-cluster"
NO_SUCH_ID = uuid.UUID(int=39)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """An embedded broker and Apache Kafka, with the same topics."""
    users = {USER: PASSWORD, POWERLESS: POWERLESS_PASSWORD}
    security = Security("SASL_PLAINTEXT", users=users, mechanisms=["PLAIN"], super_users=[USER])
    with ExitStack() as stack:
        ours = stack.enter_context(EmbeddedBroker(security=security, auto_create_topics=True))
        kafka = stack.enter_context(SecuredKafka(tmp_path_factory.mktemp("acls")))
        addresses = ours.bootstrap_servers, kafka.addresses["SASL_PLAINTEXT"]
        for address in addresses:
            prepare(address)
        yield addresses


def prepare(address: str) -> None:
    with UserPeer(address, USER, PASSWORD) as peer:
        for topic in TOPICS[:2]:
            peer.create(topic, 2)
            place = TopicPartition(topic, 0)
            eventually(
                lambda: peer.produce(place, batch(b"x")).error_code == 0,  # noqa: B023  # called at once
                "the topic takes records",
            )
        for kind, names in enumerate((GROUPS, IDS)):
            find = FindCoordinatorRequest(key_type=kind, coordinator_keys=names)
            eventually(
                lambda: {each.error_code for each in peer.ask(find, 6).coordinators} == {0},  # noqa: B023  # called at once
                "there are coordinators",
            )
        for group in GROUPS:
            commit = OffsetCommitRequest(
                group_id=group, member_id="", topics=(committed("open"), committed("closed"))
            )
            eventually(
                lambda: accepts(peer.ask(commit, 9).topics),  # noqa: B023  # called at once
                "the group takes positions",
            )
        for name in IDS:
            begin = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            eventually(lambda: peer.ask(begin, 5).error_code == 0, "there are producers")  # noqa: B023  # called at once


def committed(topic: str) -> OffsetCommitRequestTopic:
    position = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    return OffsetCommitRequestTopic(name=topic, partitions=(position,))


def accepts(topics: tuple[OffsetCommitResponseTopic, ...]) -> bool:
    return {each.error_code for topic in topics for each in topic.partitions} == {0}


# ------------------------------------------------------------------------------------- requests


def requests(address: str, left_out: frozenset[str]) -> Iterator[Asked]:
    """Each request that clients send, oldest and newest, by names and by ids where it has both."""
    ids = topic_ids(address)
    for key, served in sorted(SERVED.items()):
        cls = cast("type[Request[Message]]", apis.request_class(key))
        if cls.__name__.removesuffix("Request") in OURS_ALONE | left_out:
            continue
        for version in sorted({served.first, served.last}):
            for known in ({}, ids) if cls in BOTH_WAYS else (ids,):
                yield cast("Request[Message]", filled(cls, version, known)), version


# Their newest versions take names as well as ids.
BOTH_WAYS = (MetadataRequest, DeleteTopicsRequest)
OURS_ALONE = {
    *("ConsumerGroupPrepareAssignment", "ConsumerGroupInstallAssignment", "DraftJoinGroup"),
    *("DraftHeartbeat", "SaslHandshake", "SaslAuthenticate", "ApiVersions"),
}


def topic_ids(address: str) -> dict[str, Any]:
    with UserPeer(address, USER, PASSWORD) as peer:
        answer = peer.ask(MetadataRequest(topics=None), 12)
    return {topic.name: topic.topic_id for topic in answer.topics if topic.name}


_STRINGS = {
    "name": TOPICS[0],
    "topic": TOPICS[0],
    "resource_name": TOPICS[0],
    "group_id": GROUPS[0],
    "transactional_id": IDS[0],
    "v3_and_below_transactional_id": IDS[0],
    "key": GROUPS[0],
    "principal": f"User:{POWERLESS}",
    "host": "*",
    "protocol_type": "consumer",
    "protocol_name": "range",
    "mechanism": "PLAIN",
}
_LISTS: dict[str, tuple[str, ...]] = {
    "group_ids": GROUPS,
    "groups_names": GROUPS,
    "coordinator_keys": GROUPS,
    "topic_names": TOPICS,
    "subscribed_topic_names": TOPICS[:2],
    "transactional_ids": IDS,
}
_NUMBERS = {"acks": -1, "timeout_ms": 10_000, "replica_id": -1, "max_bytes": 1 << 20}
_NUMBERS |= {"partition_max_bytes": 1 << 20, "num_partitions": 1, "replication_factor": 1}
_NUMBERS |= {"transaction_timeout_ms": 1_000, "session_timeout_ms": 6_000, "resource_type": TOPIC}
_NUMBERS |= {"operation": READ, "permission_type": 3, "resource_type_filter": TOPIC, "count": 3}


def filled(cls: type[Struct], version: int, ids: dict[str, Any], topic: str = "") -> Struct:
    """A structure that names all that there is."""
    values: dict[str, Any] = {}
    given = defaults(cls)
    for spec in fields_of(cls, version):
        if not spec.present:
            continue
        is_named = spec.name in _STRINGS or spec.array or spec.name == "topic_id"
        if not is_named and given[spec.name] is not NODEFAULT:
            continue
        values[spec.name] = value(cls, spec, version, ids, topic)
    absent = {name: 0 for name in given if given[name] is NODEFAULT and name not in values}
    return cls(**values, **absent)


def value(
    cls: type[Struct], spec: FieldSpec, version: int, ids: dict[str, Any], topic: str
) -> object:
    if spec.name == "topic_id":
        return ids.get(topic, NO_SUCH_ID if ids else ZERO_UUID)
    if spec.name == "name" and spec.nullable and ids and "topic_id" in defaults(cls):
        return None
    if spec.name in ("configs", "assignments", "forgotten_topics_data", "configuration_keys"):
        return ()
    if spec.array and spec.struct is not None:
        names = {each.name for each in fields_of(spec.struct, version) if each.present}
        if spec.name == "groups":
            return (filled(spec.struct, version, ids),)
        by_id = "topic_id" in names and not names & {"name", "topic"}
        named = TOPICS if names & {"name", "topic"} else ("",)
        topics = TOPICS[:2] if by_id else named
        return tuple(filled(spec.struct, version, ids, each) for each in topics)
    if spec.array:
        if cls.__name__ == "DescribeGroupsRequest":
            return GROUPS
        empty: tuple[object, ...] = (0,) if spec.kind == "int32" else ()
        return _LISTS.get(spec.name, empty)
    if spec.kind == "string":
        return topic or _STRINGS.get(spec.name, None if spec.nullable else "")
    if spec.kind == "records":
        return batch(b"x")
    if spec.kind.startswith("int"):
        return _NUMBERS.get(spec.name, 0)
    return {"bool": False, "bytes": b"", "uuid": ZERO_UUID}.get(spec.kind)


# ---------------------------------------------------------------------------------------- rights

# What is done where it is allowed has effects on what comes later, or answers of its own.
EFFECTS = frozenset(
    (
        *("AlterUserScramCredentials", "AlterReplicaLogDirs", "CreateAcls", "DeleteAcls"),
        *("CreatePartitions", "CreateTopics", "DeleteTopics", "DeleteRecords", "DeleteGroups"),
        *("InitProducerId", "AddOffsetsToTxn", "EndTxn", "WriteTxnMarkers", "JoinGroup"),
        *("ConsumerGroupHeartbeat", "AlterConfigs"),
        *("IncrementalAlterConfigs", "ElectLeaders", "AlterPartitionReassignments"),
        *("DescribeClientQuotas", "DescribeLogDirs", "DescribeConfigs", "ListConfigResources"),
    )
)


def mine(resource: int, name: str, operation: int, **others: object) -> AclCreation:
    return acl(POWERLESS, resource, name, operation, **others)


RIGHTS: dict[str, tuple[tuple[AclCreation, ...], frozenset[str]]] = {
    "none": ((), frozenset()),
    "to describe": (
        (
            mine(TOPIC, "open", DESCRIBE),
            mine(GROUP, "ours", DESCRIBE),
            mine(TRANSACTION, "tx", DESCRIBE),
        ),
        frozenset(),
    ),
    "to describe the cluster": ((mine(CLUSTER, CLUSTER_NAME, DESCRIBE),), EFFECTS),
    "to read": (
        (mine(TOPIC, "open", READ), mine(GROUP, "ours", READ)),
        EFFECTS,
    ),
    "to write": ((mine(TOPIC, "open", WRITE), mine(TRANSACTION, "tx", WRITE)), EFFECTS),
    "everything of a prefix but one thing": (
        (
            mine(TOPIC, "o", ALL, resource_pattern_type=PREFIXED),
            mine(TOPIC, "open", READ, permission_type=DENY),
            mine(GROUP, "*", ALL),
            mine(GROUP, "our", DESCRIBE, permission_type=DENY, resource_pattern_type=PREFIXED),
        ),
        EFFECTS,
    ),
    "of everybody, elsewhere": (
        (
            acl("*", TOPIC, "open", READ),
            mine(TOPIC, "closed", READ, host="10.1.2.3"),
            mine(GROUP, "*", DESCRIBE, host="127.0.0.1"),
        ),
        EFFECTS,
    ),
    "to configure": (
        (mine(TOPIC, "open", ALTER_CONFIGS), mine(CLUSTER, CLUSTER_NAME, IDEMPOTENT_WRITE)),
        EFFECTS - {"IncrementalAlterConfigs"},
    ),
    "to make and to remove": (
        (
            mine(TOPIC, "nowhere", CREATE),
            mine(TOPIC, "nowhere", DELETE),
            mine(TOPIC, "open", DELETE, permission_type=DENY),
            mine(GROUP, "theirs", DELETE),
            mine(GROUP, "theirs", READ),
        ),
        # A topic that Metadata creates is there with the answer, and Kafka's later.
        EFFECTS - {"CreateTopics", "DeleteTopics", "DeleteRecords", "DeleteGroups"} | {"Metadata"},
    ),
}


@pytest.mark.parametrize("rights", list(RIGHTS))
def test_every_request_of_a_user(rights: str, both: tuple[str, str]) -> None:
    acls, left_out = RIGHTS[rights]
    answers: list[list[Any]] = []
    asked: list[Asked] = []
    for address in both:
        with UserPeer(address, USER, PASSWORD) as peer:
            peer.have_acls(*acls)
        asked = [*requests(address, left_out)]
        answers.append([answer(address, *each) for each in asked])
    different = [
        (f"{type(request).__name__} {version}", ours, theirs)
        for (request, version), ours, theirs in zip(asked, *answers, strict=True)
        if ours != theirs
    ]
    assert different == []


def answer(
    address: str,
    request: Request[Any],
    version: int,
    user: str = POWERLESS,
    password: str = POWERLESS_PASSWORD,
) -> Any:
    with UserPeer(address, user, password) as peer:
        try:
            return shown(peer.ask(request, version), version)
        except ConnectionError:
            return None


# ---------------------------------------------------------------------------------- administration


def created(*creations: AclCreation) -> Asked:
    return CreateAclsRequest(creations=creations), 3


# Kind, name, pattern, principal, host, operation, permission.
Wanted = tuple[int, str | None, int, str | None, str | None, int, int]
EVERYTHING: Wanted = (ANY, None, ANY, None, None, ANY, ANY)
FILTERS: list[Wanted] = [
    EVERYTHING,
    (TOPIC, None, ANY, None, None, ANY, ANY),
    (ANY, "open", ANY, None, None, ANY, ANY),
    (ANY, "open", LITERAL, None, None, ANY, ANY),
    (TOPIC, "open", MATCH, None, None, ANY, ANY),
    (TOPIC, "o", MATCH, None, None, ANY, ANY),
    (TOPIC, "o", PREFIXED, None, None, ANY, ANY),
    (TOPIC, "*", MATCH, None, None, ANY, ANY),
    (TOPIC, "*", LITERAL, None, None, ANY, ANY),
    (ANY, None, MATCH, f"User:{POWERLESS}", None, ANY, ANY),
    (ANY, None, MATCH, "User:*", None, ANY, ANY),
    (ANY, None, ANY, None, "10.0.0.1", ANY, ANY),
    (ANY, None, ANY, None, None, READ, ANY),
    (ANY, None, ANY, None, None, ANY, DENY),
    (CLUSTER, "another", ANY, None, None, ANY, ANY),
    (TOPIC, "", ANY, None, None, ANY, ANY),
    (99, None, ANY, None, None, ANY, ANY),
    (ANY, None, 99, None, None, ANY, ANY),
    (ANY, None, ANY, None, None, 99, ANY),
    (ANY, None, ANY, None, None, ANY, 99),
]


def described(wanted: Wanted) -> Asked:
    kind, name, pattern, principal, host, operation, permission = wanted
    request = DescribeAclsRequest(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=principal,
        host_filter=host,
        operation=operation,
        permission_type=permission,
    )
    return request, 3


def deleted(*filters: Wanted) -> Asked:
    wanted = (
        DeleteAclsFilter(
            resource_type_filter=kind,
            resource_name_filter=name,
            pattern_type_filter=pattern,
            principal_filter=principal,
            host_filter=host,
            operation=operation,
            permission_type=permission,
        )
        for kind, name, pattern, principal, host, operation, permission in filters
    )
    return DeleteAclsRequest(filters=tuple(wanted)), 3


def administration() -> Iterator[Asked]:
    """Requests of a super user, sound ones and mistakes."""
    yield deleted(EVERYTHING)
    yield created()
    yield created(mine(TOPIC, "open", READ), mine(TOPIC, "open", READ))
    yield created(
        mine(TOPIC, "o", WRITE, resource_pattern_type=PREFIXED),
        mine(TOPIC, "*", DESCRIBE, host="10.0.0.1"),
        mine(GROUP, "open", READ, permission_type=DENY),
        mine(CLUSTER, CLUSTER_NAME, ALTER),
        mine(TRANSACTION, "tx", ALL),
        acl("*", TOPIC, "open", READ),
        acl(POWERLESS, USER_KIND, "User:x", 13),
        AclCreation(
            resource_type=TOPIC,
            resource_name="open",
            principal="Robot:r2",
            host="*",
            operation=READ,
            permission_type=3,
        ),
    )
    for wanted in FILTERS:
        yield described(wanted)
    for wrong in (
        mine(CLUSTER, "another", ALTER),
        mine(TOPIC, "", READ),
        mine(ANY, "open", READ),
        mine(TOPIC, "open", ANY),
        mine(TOPIC, "open", READ, permission_type=ANY),
        mine(TOPIC, "open", READ, resource_pattern_type=MATCH),
        mine(TOPIC, "open", READ, resource_pattern_type=ANY),
        mine(99, "open", READ),
        mine(TOPIC, "open", 99),
        mine(TOPIC, "open", READ, permission_type=99),
        mine(TOPIC, "open", READ, resource_pattern_type=99),
        mine(TOPIC, "open", READ, principal="mallory"),
        mine(TOPIC, "open", READ, principal=":"),
        mine(TOPIC, "open", READ, principal=""),
        mine(TOPIC, "open", READ, host=""),
        mine(TOPIC, "a/b", READ),
        mine(GROUP, "", READ),
        mine(TOPIC, "open", CLUSTER_ACTION),
    ):
        yield created(wrong, mine(TOPIC, "beside", READ))
    yield described(EVERYTHING)
    yield deleted(
        (TOPIC, "open", LITERAL, None, None, ANY, ANY), (ANY, None, ANY, None, None, READ, ANY)
    )
    yield described(EVERYTHING)
    yield deleted((99, None, ANY, None, None, ANY, ANY), (GROUP, None, 99, None, None, ANY, ANY))
    yield deleted()
    yield deleted(EVERYTHING, EVERYTHING)
    yield described(EVERYTHING)


def test_creating_describing_and_deleting(both: tuple[str, str]) -> None:
    different: list[Any] = []
    for request, version in administration():
        ours, theirs = (answer(each, request, version, USER, PASSWORD) for each in both)
        if ours != theirs:
            different.append((request, ours, theirs))
        eventually(lambda: len({all_acls(each) for each in both}) == 1, "the same ACLs", WAIT_S)
    assert different == []


def all_acls(address: str) -> str:
    return str(answer(address, *described(EVERYTHING), USER, PASSWORD))
