"""The admin client on the embedded broker."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import AdminClient
from kohort.errors import BrokerUnavailableError
from tests.client import admin_scenarios as scenarios


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with EmbeddedBroker(folder) as broker:
        yield broker.bootstrap_servers


def test_topics_come_and_go(bootstrap: str) -> None:
    scenarios.topics_come_and_go(bootstrap)


def test_offsets_are_set_for_a_topic_made_anew(bootstrap: str) -> None:
    scenarios.offsets_are_set_for_a_topic_made_anew(bootstrap)


def test_offsets_by_both_ends_and_by_time(bootstrap: str) -> None:
    scenarios.offsets_by_both_ends_and_by_time(bootstrap)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_described_while_it_lives_and_deleted_after(
    bootstrap: str, protocol: str
) -> None:
    scenarios.a_group_is_described_while_it_lives_and_deleted_after(bootstrap, protocol)


def test_topics_grow_and_what_fails_is_told_one_by_one(bootstrap: str) -> None:
    scenarios.topics_grow_and_what_fails_is_told_one_by_one(bootstrap)


def test_c56_offsets_of_a_group_are_forgotten_but_not_while_it_reads_them(bootstrap: str) -> None:
    scenarios.offsets_of_a_group_are_forgotten_but_not_while_it_reads_them(bootstrap)


def test_everything_can_be_awaited(bootstrap: str) -> None:
    scenarios.everything_can_be_awaited(bootstrap)


def test_nobody_there_is_one_error_in_time() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with (
            AdminClient(bootstrap_servers=address, default_api_timeout_ms=200) as admin,
            pytest.raises(BrokerUnavailableError, match=f"{address}.*refused"),
        ):
            admin.list_topics()


def test_what_a_future_time_has_no_offset_for_cannot_be_stored(bootstrap: str) -> None:
    scenarios.what_a_future_time_has_no_offset_for_cannot_be_stored(bootstrap)


def test_settings_are_described_as_kafka_python_describes_them(bootstrap: str) -> None:
    scenarios.settings_are_described_as_kafka_python_describes_them(bootstrap)


def test_settings_are_changed_one_by_one(bootstrap: str) -> None:
    scenarios.settings_are_changed_one_by_one(bootstrap)


def test_first_records_are_deleted(bootstrap: str) -> None:
    scenarios.first_records_are_deleted(bootstrap)


@pytest.mark.parametrize("instance", [None, "an-instance"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_taken_out_of_their_group(
    bootstrap: str, protocol: str, instance: str | None
) -> None:
    scenarios.members_are_taken_out_of_their_group(bootstrap, protocol, instance)


def test_offsets_are_reset_to_what_the_partition_has(bootstrap: str) -> None:
    scenarios.offsets_are_reset_to_what_the_partition_has(bootstrap)


@pytest.mark.parametrize("is_async", [False, True])
def test_one_that_fails_costs_no_other(bootstrap: str, is_async: bool) -> None:
    scenarios.one_that_fails_costs_no_other(bootstrap, is_async=is_async)
