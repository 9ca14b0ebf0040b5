"""Racks as a real Kafka tells them, and counts them in the hash of a group's topics."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kohort.broker import EmbeddedBroker
from kohort.group.coordinator.topics import NO_TOPICS, TopicsImage, TopicView
from kohort.wire.messages.cluster import DescribeClusterRequest
from kohort.wire.messages.consumer_group_records import ConsumerGroupMetadataValue
from kohort.wire.messages.metadata import MetadataRequest
from tests.broker.peer import Peer
from tests.real_kafka.broker import RealKafka
from tests.system.kafka.test_consumer_group_log import DEADLINE_S, TOPIC, member
from tests.system.kafka.test_group_log import group_log

RACK = "räck-1"


def racks(servers: str) -> list[str | None]:
    """Where the one broker says it is."""
    with Peer(servers) as peer:
        metadata = peer.ask(MetadataRequest(topics=()), 12)
        cluster = peer.ask(DescribeClusterRequest(include_cluster_authorized_operations=False), 1)
    return [metadata.brokers[0].rack, cluster.brokers[0].rack]


@pytest.mark.parametrize("rack", [RACK, None])
def test_both_brokers_say_in_which_rack_they_are(
    rack: str | None, tmp_path: Path, real_kafka: RealKafka
) -> None:
    with EmbeddedBroker(tmp_path / "data", broker_rack=rack or "") as broker:
        ours = racks(broker.bootstrap_servers)
    assert ours == [rack, rack]
    if rack is None:
        assert racks(real_kafka.bootstrap_servers) == ours


def test_k14_our_hash_of_topics_in_a_rack_is_kafkas(tmp_path: Path) -> None:
    """KIP-1101: the racks of replicas are part of it."""
    with RealKafka(tmp_path, {"broker.rack": "rack-1"}) as kafka:
        assert racks(kafka.bootstrap_servers) == ["rack-1", "rack-1"]
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for done in admin.create_topics([NewTopic(TOPIC, 4, 1)]).values():
            done.result(DEADLINE_S)
        with member(kafka, TOPIC, None) as only:
            polled = 0
            while not only.assignment():
                only.poll(0.1)
                polled += 1
                assert polled < DEADLINE_S * 10
        log = group_log(kafka)
    (epoch, *_) = (each.value for each in log if isinstance(each.value, ConsumerGroupMetadataValue))
    (topic_id,) = {
        topic.topic_id for each in log for topic in getattr(each.value, "topic_partitions", ())
    }
    view = TopicView.of(topic_id, 4, "rack-1")
    image = TopicsImage.of([(TOPIC, view)], NO_TOPICS)
    assert epoch.metadata_hash == image.metadata_hash([TOPIC])
    nowhere = TopicsImage.of([(TOPIC, TopicView.of(topic_id, 4, None))], NO_TOPICS)
    assert epoch.metadata_hash != nowhere.metadata_hash([TOPIC])
