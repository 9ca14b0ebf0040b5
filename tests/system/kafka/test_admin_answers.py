"""The broker answers administrators' mistakes as a real Kafka does: the same requests to both."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from kohort.broker import EmbeddedBroker
from kohort.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
)
from kohort.wire.messages.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kohort.wire.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic
from tests.broker.peer import Peer
from tests.broker.processes import eventually
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.foreign import new_topic, produce
from tests.system.clients.test_admin import give_a_group_another_interval

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
INTERVAL = "consumer.assignment.interval.ms"


def answers(bootstrap: str) -> list[Any]:
    """What a broker answers, without names and messages, which are its own."""
    topic = new_topic(bootstrap)
    produce(bootstrap, topic, [b"one", b"two"])
    found: list[Any] = []
    with Peer(bootstrap) as peer:
        found += leader_epochs(peer, topic)
        found += list_offsets(peer, topic)
        found += configs(peer, topic)
        found += growing(peer, topic)
        found += altering(peer, topic)
    return found


def leader_epochs(peer: Peer, topic: str) -> list[Any]:
    asked = [(0, -1, 0), (0, -1, 9), (0, -1, -1), (0, 0, 0), (0, 7, 0), (5, -1, 0), (1, -1, 0)]
    partitions = tuple(
        OffsetForLeaderPartition(partition=p, current_leader_epoch=known, leader_epoch=epoch)
        for p, known, epoch in asked
    )
    found = []
    for partition in partitions:  # a broker may put the same partition asked twice together
        wanted = OffsetForLeaderTopic(topic=topic, partitions=(partition,))
        (answer,) = peer.ask(OffsetForLeaderEpochRequest(topics=(wanted,)), 4).topics
        (each,) = answer.partitions
        found.append((each.error_code, each.leader_epoch, each.end_offset))
    return found


def list_offsets(peer: Peer, topic: str) -> list[Any]:
    found = []
    for known, timestamp in ((-1, -1), (0, -2), (7, -1), (-1, 2**60)):
        partition = ListOffsetsPartition(
            partition_index=0, current_leader_epoch=known, timestamp=timestamp
        )
        wanted = ListOffsetsTopic(name=topic, partitions=(partition,))
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(wanted,))
        (answer,) = peer.ask(request, 7).topics
        (each,) = answer.partitions
        found.append((each.error_code, each.offset, each.leader_epoch))
    return found


def configs(peer: Peer, topic: str) -> list[Any]:
    asked = (
        (2, topic),
        (2, "nowhere"),
        (2, "a/b"),
        (4, "1"),
        (4, ""),
        (4, "77"),
        (4, "x"),
        (99, ""),
    )
    found = []
    for kind, name in asked:
        wanted = DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=("cleanup.policy",)
        )
        (result,) = peer.ask(DescribeConfigsRequest(resources=(wanted,)), 4).results
        settings = [(each.name, each.value, each.config_source) for each in result.configs]
        found.append((kind, result.error_code, settings))
    return found + group_configs(peer)


def group_configs(peer: Peer) -> list[Any]:
    """Names; the values are each broker's own, and so is whether it was started with them.

    No names ask for all settings, of which Kafka has more.
    """
    found = []
    keys = (INTERVAL, HEARTBEAT, SESSION)
    for name, wanted_keys in (("any", keys), ("any", ()), ("any", None), ("", keys)):
        wanted = DescribeConfigsResource(
            resource_type=32, resource_name=name, configuration_keys=wanted_keys
        )
        (result,) = peer.ask(DescribeConfigsRequest(resources=(wanted,)), 4).results
        settings = sorted(each.name for each in result.configs if each.name in keys)
        found.append((name, result.error_code, settings))
    return found


def growing(peer: Peer, topic: str) -> list[Any]:
    found = []
    for wanted in ([(topic, 0)], [(topic, 1)], [("nowhere", 3)], [(topic, 3)] * 2, [(topic, -1)]):
        request = CreatePartitionsRequest(
            topics=tuple(
                CreatePartitionsTopic(name=name, count=count, assignments=None)
                for name, count in wanted
            ),
            timeout_ms=10_000,
            validate_only=False,
        )
        results = peer.ask(request, 3).results
        found.append((wanted[0][1], [each.error_code for each in results]))
    return found


def altering(peer: Peer, topic: str) -> list[Any]:
    """K57: settings of topics and groups, and what of them cannot be."""
    asked: list[tuple[int, str, list[tuple[str, int, str | None]]]] = [
        (32, "", [(SESSION, 0, "7000")]),
        (32, "g", [(SESSION, 0, "7000")]),
        (32, "g", [(HEARTBEAT, 0, "700"), (INTERVAL, 0, "5")]),
        (32, "g", [(SESSION, 0, " 8000 ")]),
        (32, "g", [(SESSION, 0, "99")]),
        (32, "g", [(SESSION, 0, "60001")]),
        (32, "g", [(SESSION, 0, "soon")]),
        (32, "g", [(SESSION, 0, "99999999999")]),
        (32, "g", [(SESSION, 0, "")]),
        (32, "g", [(SESSION, 0, None)]),
        (32, "g", [(SESSION, 2, "7000")]),
        (32, "g", [(SESSION, 3, "7000")]),
        (32, "g", [(HEARTBEAT, 0, "99")]),
        (32, "g", [(HEARTBEAT, 0, "15001")]),
        (32, "g", [(INTERVAL, 0, "-1")]),
        (32, "g", [(INTERVAL, 0, "15001")]),
        (32, "g", [(SESSION, 0, "2000"), (HEARTBEAT, 0, "2000")]),
        (32, "g", [(SESSION, 0, "7000"), (SESSION, 0, "7001")]),
        (32, "g", [("nonsense", 0, "1")]),
        (32, "g", [("nonsense", 1, None)]),
        (32, "g", []),
        (2, "nowhere", [("retention.ms", 0, "7000")]),
        (2, "a/b", [("retention.ms", 0, "7000")]),
        (2, topic, [("retention.ms", 0, "7000"), ("cleanup.policy", 2, "compact")]),
        (2, topic, [("retention.ms", 0, "x")]),
        (2, topic, [("nonsense", 0, "x")]),
        (2, topic, [("retention.ms", 2, "1")]),
        (2, topic, [("retention.ms", 1, None), ("cleanup.policy", 3, "delete")]),
        (4, "77", [("message.max.bytes", 0, "7000")]),
        (99, "x", [("message.max.bytes", 0, "7000")]),
    ]
    found: list[Any] = []
    for kind, name, operations in asked:
        configs = (AlterableConfig(name=n, config_operation=op, value=v) for n, op, v in operations)
        resource = AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=tuple(configs)
        )
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        (answer,) = peer.ask(request, 1).responses
        found.append((kind, operations, answer.error_code))
    of_group = [(INTERVAL, "5", 8), (HEARTBEAT, "700", 8), (SESSION, "8000", 8)]
    of_topic = [("cleanup.policy", "compact", 1)]
    # Kafka's broker hears of it from its controller
    eventually(lambda: own(peer, 32, "g") == of_group, "what the group has set")
    eventually(lambda: own(peer, 2, topic) == of_topic, "what the topic has set")
    return found


def own(peer: Peer, kind: int, name: str) -> list[Any]:
    """What a resource has set itself."""
    wanted = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    (result,) = peer.ask(DescribeConfigsRequest(resources=(wanted,)), 4).results
    settings = [(each.name, each.value, each.config_source) for each in result.configs]
    return sorted(each for each in settings if each[2] in (1, 8))


def test_k57_a_group_gets_another_interval(real_kafka: RealKafka) -> None:
    """The same as on our broker, by librdkafka's administrator."""
    give_a_group_another_interval(real_kafka.bootstrap_servers)


def test_both_brokers_answer_alike(real_kafka: RealKafka, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / str(uuid.uuid4())) as broker:
        ours = answers(broker.bootstrap_servers)
    theirs = answers(real_kafka.bootstrap_servers)
    assert [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]] == []


def setting_types(bootstrap: str) -> dict[str, int]:
    """The type of every setting of a topic, the broker and a group."""
    topic = new_topic(bootstrap)
    asked = tuple(
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((2, topic), (4, "1"), (32, "any"))
    )
    results: tuple[DescribeConfigsResult, ...] = ()

    def all_described() -> bool:
        """Kafka says that a topic is made a little before its broker knows the topic."""
        nonlocal results
        results = peer.ask(DescribeConfigsRequest(resources=asked), 4).results
        return all(result.error_code == 0 for result in results)

    with Peer(bootstrap) as peer:
        eventually(all_described, "the settings of a new topic")
    return {each.name: each.config_type for result in results for each in result.configs}


def test_settings_have_the_types_that_kafka_gives_them(
    real_kafka: RealKafka, tmp_path: Path
) -> None:
    theirs = setting_types(real_kafka.bootstrap_servers)
    with EmbeddedBroker(tmp_path) as broker:
        ours = setting_types(broker.bootstrap_servers)
    known = {name: kind for name, kind in ours.items() if name in theirs}
    assert len(known) > 40
    assert known == {name: theirs[name] for name in known}
