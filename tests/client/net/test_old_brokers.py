"""Brokers that are too old for the client cause one clear error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort import AdminClient, Consumer, Producer, TopicPartition
from kohort.errors import KafkaError, KohortError
from kohort.values import replace
from kohort.wire.codec import frame as frames
from kohort.wire.messages.api_versions import ApiVersionsResponse
from tests.client.garbling_proxy import OFFSET_FETCH, GarblingProxy

API_VERSIONS = 18
VERSION = 4  # of ApiVersions; both sides support it
LENGTH = 4
TOO_OLD = (
    "the broker is older than Apache Kafka 3.0, which kohort needs: it has API 9 up to version 7, "
    "and this client begins with 8"
)


def of_kafka_2_8(answer: bytes) -> bytes:
    """OffsetFetch ends with the last version of Apache Kafka 2.8."""
    frame = memoryview(answer)[LENGTH:]
    served = frames.decode_response(ApiVersionsResponse, VERSION, frame)
    keys = tuple(
        replace(api, max_version=7) if api.api_key == OFFSET_FETCH else api
        for api in served.api_keys
    )
    older = replace(served, api_keys=keys)
    return bytes(frames.encode_response(older, VERSION, frames.correlation_id_of(frame)))


@pytest.fixture
def servers(bootstrap: str) -> Iterator[str]:
    with GarblingProxy(bootstrap) as proxy:
        proxy.garble(of_kafka_2_8, API_VERSIONS)
        yield proxy.bootstrap_servers


def test_each_client_names_the_version_that_it_needs(servers: str, topic: str) -> None:
    with (
        Consumer(bootstrap_servers=servers, group_id="g", default_api_timeout_ms=800) as consumer,
        Producer(bootstrap_servers=servers, max_block_ms=800) as producer,
        AdminClient(bootstrap_servers=servers, default_api_timeout_ms=800) as admin,
    ):
        consumer.subscribe([topic])
        with pytest.raises(KohortError, match=TOO_OLD):
            consumer.committed(TopicPartition(topic, 0))
        with pytest.raises(KohortError, match=TOO_OLD):
            producer.send(topic, b"v").get(60)
        with pytest.raises(KohortError, match=TOO_OLD):
            admin.list_topics()


def test_each_poll_of_a_member_names_it(servers: str, topic: str) -> None:
    with Consumer(bootstrap_servers=servers, group_id="g") as reader:
        reader.subscribe([topic])
        for _ in range(2):
            with pytest.raises(KafkaError, match=TOO_OLD):
                reader.poll(timeout_ms=60_000)
