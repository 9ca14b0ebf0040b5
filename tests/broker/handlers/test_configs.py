"""Changes of topic and group settings while the broker runs (KIP-339, K57)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.broker import EmbeddedBroker
from kohort.errors import ErrorCode
from kohort.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from tests.broker.peer import Peer

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
DEFAULT, STATIC, OF_TOPIC, OF_GROUP = 5, 4, 1, 8

Operation = tuple[str, int, str | None]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    folder = tmp_path_factory.mktemp("data")
    made = EmbeddedBroker(folder, group_consumer_session_timeout_ms=44_000).start()
    made.create_topic("t")
    made.create_topic("changing")
    yield made
    made.stop()


@pytest.fixture
def peer(broker: EmbeddedBroker) -> Iterator[Peer]:
    with Peer(broker.bootstrap_servers) as made:
        yield made


def resource(kind: int, name: str, *operations: Operation) -> AlterConfigsResource:
    configs = (
        AlterableConfig(name=name, config_operation=operation, value=value)
        for name, operation, value in operations
    )
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=tuple(configs))


def alter(peer: Peer, *resources: AlterConfigsResource, validate_only: bool = False) -> list[int]:
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    answers = peer.ask(request, 1).responses
    assert [each.resource_name for each in answers] == [each.resource_name for each in resources]
    assert all((each.error_message is None) == (each.error_code == 0) for each in answers)
    return [each.error_code for each in answers]


def described(peer: Peer, kind: int, name: str) -> dict[str, tuple[str | None, int]]:
    """Return value and source of each setting."""
    wanted = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    (result,) = peer.ask(DescribeConfigsRequest(resources=(wanted,)), 4).results
    assert result.error_code == 0
    return {each.name: (each.value, each.config_source) for each in result.configs}


def interval(peer: Peer, group: str) -> int:
    """Return the heartbeat interval that a joining member gets."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=("t",),
        topic_partitions=(),
    )
    return peer.ask(request, 1).heartbeat_interval_ms


def test_k57_a_groups_settings_hold_at_once_and_after_a_restart(
    broker: EmbeddedBroker, peer: Peer
) -> None:
    assert alter(peer, resource(GROUP, "kept", (HEARTBEAT, SET, "700"))) == [0]
    assert (interval(peer, "kept"), interval(peer, "other")) == (700, 1000)
    broker.stop()
    broker.start()
    with Peer(broker.bootstrap_servers) as again:
        assert interval(again, "kept") == 700
        assert described(again, GROUP, "kept")[HEARTBEAT] == ("700", OF_GROUP)
        assert alter(again, resource(GROUP, "kept", (HEARTBEAT, DELETE, None))) == [0]
        assert interval(again, "kept") == 1000


def test_k57_a_description_says_where_each_setting_is_from(peer: Peer) -> None:
    assert described(peer, GROUP, "told") == {
        HEARTBEAT: ("1000", DEFAULT),
        SESSION: ("44000", STATIC),
        "consumer.assignment.interval.ms": ("0", DEFAULT),
    }
    assert alter(peer, resource(GROUP, "told", (SESSION, SET, "50000"))) == [0]
    assert described(peer, GROUP, "told")[SESSION] == ("50000", OF_GROUP)


def test_every_setting_of_groups_is_told_by_kafkas_name(peer: Peer) -> None:
    told = described(peer, BROKER, "1")
    assert told["group.consumer.migration.policy"] == ("bidirectional", DEFAULT)
    assert told["group.consumer.session.timeout.ms"] == ("44000", STATIC)
    assert told["group.consumer.assignors"] == ("uniform,range", DEFAULT)
    assert told["group.consumer.max.heartbeat.interval.ms"] == ("15000", DEFAULT)
    assert told["broker.rack"] == (None, DEFAULT)


def test_a_topics_settings_change_and_stay(broker: EmbeddedBroker, peer: Peer) -> None:
    operations: tuple[Operation, ...] = (
        ("retention.ms", SET, "60000"),
        ("cleanup.policy", APPEND, "compact"),
        ("segment.bytes", SET, "2000"),
    )
    assert alter(peer, resource(TOPIC, "changing", *operations), validate_only=True) == [0]
    assert described(peer, TOPIC, "changing")["retention.ms"][1] == DEFAULT
    assert alter(peer, resource(TOPIC, "changing", *operations)) == [0]
    later: tuple[Operation, ...] = (
        ("cleanup.policy", SUBTRACT, "delete"),
        ("segment.bytes", DELETE, None),
    )
    assert alter(peer, resource(TOPIC, "changing", *later)) == [0]
    broker.stop()
    broker.start()
    with Peer(broker.bootstrap_servers) as again:
        told = described(again, TOPIC, "changing")
    assert told["retention.ms"] == ("60000", OF_TOPIC)
    assert told["cleanup.policy"] == ("compact", OF_TOPIC)
    assert told["segment.bytes"][1] == DEFAULT


@pytest.mark.parametrize(
    ("kind", "name", "operation", "code"),
    [
        (TOPIC, "nowhere", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ("retention.ms", SET, "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "t", ("retention.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("nonsense", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (GROUP, "", (SESSION, SET, "50000"), ErrorCode.INVALID_REQUEST),
        (GROUP, "g", (SESSION, SET, "1"), ErrorCode.INVALID_CONFIG),
        (BROKER, "1", ("message.max.bytes", SET, "1"), ErrorCode.INVALID_REQUEST),
        (99, "x", ("x", SET, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_changed_is_refused(
    peer: Peer, kind: int, name: str, operation: Operation, code: ErrorCode
) -> None:
    assert alter(peer, resource(kind, name, operation)) == [code]


def test_what_the_broker_does_not_have_can_be_deleted(peer: Peer) -> None:
    """After moving partitions, Kafka's tool deletes throttles from the broker's settings."""
    throttle = ("leader.replication.throttled.rate", DELETE, None)
    assert alter(peer, resource(BROKER, "1", throttle)) == [ErrorCode.NONE]
    assert alter(peer, resource(BROKER, "2", throttle)) == [ErrorCode.INVALID_REQUEST]


def test_nothing_is_changed_twice_in_one_request(peer: Peer) -> None:
    once = resource(GROUP, "g", (SESSION, SET, "50000"))
    assert alter(peer, once, once) == [ErrorCode.INVALID_REQUEST] * 2
    twice = resource(GROUP, "g", (SESSION, SET, "50000"), (SESSION, SET, "50001"))
    assert alter(peer, twice, resource(GROUP, "h", (SESSION, SET, "50000"))) == [
        ErrorCode.INVALID_REQUEST,
        0,
    ]
    assert described(peer, GROUP, "g")[SESSION][1] == STATIC
