"""Our admin client on a real Kafka."""

from __future__ import annotations

import pytest

from tests.client import admin_scenarios as scenarios
from tests.real_kafka.broker import RealKafka


def test_topics_come_and_go(real_kafka: RealKafka) -> None:
    scenarios.topics_come_and_go(real_kafka.bootstrap_servers)


def test_offsets_by_both_ends_and_by_time(real_kafka: RealKafka) -> None:
    scenarios.offsets_by_both_ends_and_by_time(real_kafka.bootstrap_servers)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_described_while_it_lives_and_deleted_after(
    real_kafka: RealKafka, protocol: str
) -> None:
    scenarios.a_group_is_described_while_it_lives_and_deleted_after(
        real_kafka.bootstrap_servers, protocol
    )


def test_topics_grow_and_what_fails_is_told_one_by_one(real_kafka: RealKafka) -> None:
    scenarios.topics_grow_and_what_fails_is_told_one_by_one(real_kafka.bootstrap_servers)


def test_c56_offsets_of_a_group_are_forgotten_but_not_while_it_reads_them(
    real_kafka: RealKafka,
) -> None:
    scenarios.offsets_of_a_group_are_forgotten_but_not_while_it_reads_them(
        real_kafka.bootstrap_servers
    )


def test_everything_can_be_awaited(real_kafka: RealKafka) -> None:
    scenarios.everything_can_be_awaited(real_kafka.bootstrap_servers)


def test_what_a_future_time_has_no_offset_for_cannot_be_stored(real_kafka: RealKafka) -> None:
    scenarios.what_a_future_time_has_no_offset_for_cannot_be_stored(real_kafka.bootstrap_servers)


def test_settings_are_described_as_kafka_python_describes_them(real_kafka: RealKafka) -> None:
    scenarios.settings_are_described_as_kafka_python_describes_them(real_kafka.bootstrap_servers)


def test_settings_are_changed_one_by_one(real_kafka: RealKafka) -> None:
    scenarios.settings_are_changed_one_by_one(real_kafka.bootstrap_servers)


def test_first_records_are_deleted(real_kafka: RealKafka) -> None:
    scenarios.first_records_are_deleted(real_kafka.bootstrap_servers)


def test_offsets_are_set_for_a_topic_made_anew(real_kafka: RealKafka) -> None:
    scenarios.offsets_are_set_for_a_topic_made_anew(real_kafka.bootstrap_servers)


@pytest.mark.parametrize("instance", [None, "an-instance"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_taken_out_of_their_group(
    real_kafka: RealKafka, protocol: str, instance: str | None
) -> None:
    scenarios.members_are_taken_out_of_their_group(real_kafka.bootstrap_servers, protocol, instance)


def test_offsets_are_reset_to_what_the_partition_has(real_kafka: RealKafka) -> None:
    scenarios.offsets_are_reset_to_what_the_partition_has(real_kafka.bootstrap_servers)


@pytest.mark.parametrize("is_async", [False, True])
def test_one_that_fails_costs_no_other(real_kafka: RealKafka, is_async: bool) -> None:
    scenarios.one_that_fails_costs_no_other(real_kafka.bootstrap_servers, is_async=is_async)
