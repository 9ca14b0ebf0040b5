"""Our clients on an Apache Kafka: groups of each protocol, the producer, the admin client."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka.admin import AdminClient as ForeignAdmin

from kohort.client import AdminClient, NewTopic, Producer
from kohort.types import TopicPartition
from tests.client.producer_scenarios import read_messages
from tests.real_kafka import foreign
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.known import until_coordinator_knows
from tests.smoke.sharing import Sharing
from tests.system.clients.group import ConfluentMember, Driver, eventually
from tests.system.clients.ours import OurMember

pytestmark = pytest.mark.timeout(300)

LASTING = {"session_timeout_ms": 30_000}
PROTOCOLS: dict[str, dict[str, object]] = {
    "classic-eager": {"partition_assignment_strategy": "range", **LASTING},
    "classic-cooperative": {"partition_assignment_strategy": "cooperative-sticky", **LASTING},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.mark.counts_records
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_takes_over_from_another_and_each_record_is_read_once(
    real_kafka: RealKafka, driver: Driver, protocol: str
) -> None:
    settings = PROTOCOLS[protocol]
    sharing = Sharing(real_kafka.bootstrap_servers, driver)
    first = sharing.join(OurMember, **settings)
    sharing.join(OurMember, **settings)
    sharing.produce()
    sharing.leave(first)
    sharing.produce()
    sharing.check()


def test_librdkafka_reads_the_keys_values_and_headers_that_our_producer_compressed(
    real_kafka: RealKafka,
) -> None:
    servers = real_kafka.bootstrap_servers
    topic = foreign.new_topic(servers)
    sent = [
        (b"k%d" % n, b"value %d " % n * 20, [("number", b"%d" % n), ("none", None)])
        for n in range(200)
    ]
    with Producer(bootstrap_servers=servers, compression_type="zstd") as producer:
        futures = [
            producer.send(topic, value, key=key, headers=headers) for key, value, headers in sent
        ]
        producer.flush(60)
        assert [future.result(0).offset for future in futures] == list(range(200))
    found = [(each.key(), each.value(), each.headers()) for each in read_messages(servers, topic)]
    assert found == sent


def test_the_admin_client_makes_a_topic_describes_its_group_and_deletes_both(
    real_kafka: RealKafka, driver: Driver
) -> None:
    servers, topic = real_kafka.bootstrap_servers, f"topic-{uuid.uuid4().hex}"
    group, stranger = f"group-of-{topic}", ForeignAdmin({"bootstrap.servers": servers})
    with AdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, 3)])
        until_coordinator_knows(servers, (topic,))
        assert len(stranger.list_topics(timeout=60).topics[topic].partitions) == 3
        member = driver.add(lambda: ConfluentMember(servers, group, topic, client_id="north"))
        driver.until_shared([member], 3)
        described = admin.describe_groups([group])[group]
        assert (described.state, described.assignor) == ("Stable", "range")
        (seen,) = described.members
        assert seen.client_id == "north"
        assert seen.assignment == frozenset(TopicPartition(topic, number) for number in range(3))
        driver.leave(member)
        admin.delete_groups([group])
        admin.delete_topics([topic])
    eventually(lambda: topic not in stranger.list_topics(timeout=60).topics, "the topic is gone")
