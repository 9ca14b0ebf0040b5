"""`send_arrow` on a real Kafka."""

from __future__ import annotations

import pytest

from tests.client import arrow_scenarios as scenarios
from tests.client.loops import on_a_loop
from tests.client.producer_scenarios import CODECS
from tests.real_kafka.broker import RealKafka


@pytest.mark.parametrize("codec", CODECS)
def test_every_column_arrives(real_kafka: RealKafka, codec: str) -> None:
    scenarios.every_column_arrives(real_kafka.bootstrap_servers, codec)


def test_nulls_and_empty_values_stay_what_they_are(real_kafka: RealKafka) -> None:
    scenarios.nulls_and_empty_values_stay_what_they_are(real_kafka.bootstrap_servers)


def test_what_was_polled_can_be_sent(real_kafka: RealKafka) -> None:
    scenarios.what_was_polled_can_be_sent(real_kafka.bootstrap_servers)


def test_the_order_of_send_and_send_arrow_is_kept(real_kafka: RealKafka) -> None:
    scenarios.the_order_of_send_and_send_arrow_is_kept(real_kafka.bootstrap_servers)


def test_lost_answers_make_no_duplicates(real_kafka: RealKafka) -> None:
    scenarios.lost_answers_make_no_duplicates(real_kafka.bootstrap_servers)


def test_what_a_broker_refuses_is_told_from_the_rest(real_kafka: RealKafka) -> None:
    scenarios.what_a_broker_refuses_is_told_from_the_rest(real_kafka.bootstrap_servers)


def test_batches_too_large_for_the_topic_are_divided(real_kafka: RealKafka) -> None:
    scenarios.batches_too_large_for_the_topic_are_divided(real_kafka.bootstrap_servers)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_batches_are_divided_until_they_fit(real_kafka: RealKafka, codec: str) -> None:
    scenarios.batches_are_divided_until_they_fit(real_kafka.bootstrap_servers, codec)


def test_headers_alone_make_a_batch_too_large(real_kafka: RealKafka) -> None:
    scenarios.headers_alone_make_a_batch_too_large(real_kafka.bootstrap_servers)


def test_times_before_1970_are_refused_before_anything_is_sent(real_kafka: RealKafka) -> None:
    scenarios.times_before_1970_are_refused_before_anything_is_sent(real_kafka.bootstrap_servers)


def test_times_beyond_microseconds_are_read(
    real_kafka: RealKafka, caplog: pytest.LogCaptureFixture
) -> None:
    scenarios.times_beyond_microseconds_are_read(real_kafka.bootstrap_servers, caplog)


@pytest.mark.parametrize("partitioner", ["murmur2", "consistent_random"])
def test_partitions_are_those_of_send(real_kafka: RealKafka, partitioner: str) -> None:
    scenarios.partitions_are_those_of_send(real_kafka.bootstrap_servers, partitioner)


def test_nothing_is_sent_of_a_table_with_a_bad_row(real_kafka: RealKafka) -> None:
    scenarios.nothing_is_sent_of_a_table_with_a_bad_row(real_kafka.bootstrap_servers)


def test_threads_share_a_small_memory(real_kafka: RealKafka) -> None:
    scenarios.threads_share_a_small_memory(real_kafka.bootstrap_servers)


def test_each_acks_delivers(real_kafka: RealKafka) -> None:
    scenarios.each_acks_delivers(real_kafka.bootstrap_servers)


@on_a_loop
async def test_a_loop_sends_tables(real_kafka: RealKafka) -> None:
    await scenarios.a_loop_sends_tables(real_kafka.bootstrap_servers)
