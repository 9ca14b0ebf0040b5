"""Our producer on a real Kafka."""

from __future__ import annotations

import pytest

from kohort.client.producer.api import Producer
from tests.client import producer_scenarios as scenarios
from tests.real_kafka.broker import RealKafka


@pytest.mark.parametrize("codec", scenarios.CODECS)
def test_a_foreign_client_reads_each_codec(real_kafka: RealKafka, codec: str) -> None:
    scenarios.a_foreign_client_reads_each_codec(real_kafka.bootstrap_servers, codec)


def test_keys_decide_the_partition(real_kafka: RealKafka) -> None:
    scenarios.keys_decide_the_partition(real_kafka.bootstrap_servers)


def test_headers_and_timestamps_arrive(real_kafka: RealKafka) -> None:
    scenarios.headers_and_timestamps_arrive(real_kafka.bootstrap_servers)


def test_lost_answers_make_no_duplicates(real_kafka: RealKafka) -> None:
    scenarios.lost_answers_make_no_duplicates(real_kafka.bootstrap_servers)


def test_a_refused_record_is_told_from_its_batch(real_kafka: RealKafka) -> None:
    scenarios.a_refused_record_is_told_from_its_batch(real_kafka.bootstrap_servers)


def test_threads_share_a_producer_and_its_memory(real_kafka: RealKafka) -> None:
    scenarios.threads_share_a_producer(real_kafka.bootstrap_servers)


def test_each_acks_delivers(real_kafka: RealKafka) -> None:
    scenarios.each_acks_delivers(real_kafka.bootstrap_servers)


def test_a_topic_is_created_by_the_first_record(real_kafka: RealKafka) -> None:
    topic = scenarios.unique_name()
    with Producer(bootstrap_servers=real_kafka.bootstrap_servers) as producer:
        assert producer.send(topic, b"v").result(30).offset == 0
