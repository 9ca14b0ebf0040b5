"""Settings that contradict each other are refused; a default gives way to an explicit setting."""

from __future__ import annotations

import re

import pytest

from kohort import Producer
from kohort.broker import EmbeddedBroker
from kohort.client.config.definitions import (
    AdminConfig,
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    make,
    make_from_kafka,
)
from kohort.errors import ConfigError


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (
            ProducerConfig,
            {"linger_ms": 5_000, "delivery_timeout_ms": 1_000},
            "delivery.timeout.ms is 1000; it must be above linger.ms, which is 5000",
        ),
        (
            ProducerConfig,
            {"delivery_timeout_ms": 5},
            "above linger.ms, which is 5 (the default)",
        ),
        (ProducerConfig, {"delivery_timeout_ms": 0, "linger_ms": 0}, "above linger.ms"),
        (
            ConsumerConfig,
            {"retry_backoff_ms": 500, "retry_backoff_max_ms": 100},
            "retry.backoff.ms is 500, above retry.backoff.max.ms, which is 100",
        ),
        (
            AdminConfig,
            {"reconnect_backoff_ms": 500, "reconnect_backoff_max_ms": 100},
            "reconnect.backoff.ms is 500, above reconnect.backoff.max.ms",
        ),
        (
            ConsumerConfig,
            {"fetch_min_bytes": 2_000, "fetch_max_bytes": 1_000},
            "fetch.min.bytes is 2000; it cannot be above fetch.max.bytes, which is 1000",
        ),
        (ConsumerConfig, {"fetch_min_bytes": 2**30}, "which is 52428800 (the default)"),
        (
            ConsumerConfig,
            {"heartbeat_interval_ms": 6_000, "session_timeout_ms": 5_000},
            "heartbeat.interval.ms is 6000; it must be below session.timeout.ms, which is 5000",
        ),
        (ConsumerConfig, {"enable_auto_commit": True}, "enable.auto.commit needs group.id"),
        (ConsumerConfig, {"group_instance_id": "one"}, "group.instance.id needs group.id"),
    ],
)
def test_settings_that_cannot_both_hold_are_refused_with_their_values(
    kind: type[ClientConfig], settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        make(kind, settings)
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    with pytest.raises(ConfigError, match=re.escape(message)):
        make_from_kafka(kind, dotted)


def test_a_producer_refuses_them_when_it_is_made() -> None:
    with (
        EmbeddedBroker() as broker,
        pytest.raises(ConfigError, match=r"above linger\.ms"),
    ):
        Producer(
            bootstrap_servers=broker.bootstrap_servers, linger_ms=5_000, delivery_timeout_ms=1_000
        )


def test_the_default_of_delivery_timeout_gives_way_to_what_was_set() -> None:
    assert make(ProducerConfig, {}).delivery_timeout_ms == 120_000
    lingers = make(ProducerConfig, {"linger_ms": 200_000})
    assert lingers.delivery_timeout_ms == 230_000
    waits = make(ProducerConfig, {"request_timeout_ms": 150_000})
    assert waits.delivery_timeout_ms == 150_005


def test_a_short_delivery_timeout_needs_no_shorter_request_timeout() -> None:
    hasty = make(ProducerConfig, {"delivery_timeout_ms": 1_000})
    assert (hasty.delivery_timeout_ms, hasty.request_timeout_ms) == (1_000, 30_000)


def test_the_longest_pause_gives_way_to_the_first() -> None:
    config = make(ConsumerConfig, {"retry_backoff_ms": 5_000, "reconnect_backoff_ms": 7_000})
    assert (config.retry_backoff_max_ms, config.reconnect_backoff_max_ms) == (5_000, 7_000)
    assert make(ConsumerConfig, {"retry_backoff_max_ms": 50}).retry_backoff_max_ms == 50


def test_a_call_may_take_as_long_as_one_of_its_requests() -> None:
    for kind in (ConsumerConfig, AdminConfig):
        assert make(kind, {"request_timeout_ms": 90_000}).default_api_timeout_ms == 90_000
        assert make(kind, {"request_timeout_ms": 9_000}).default_api_timeout_ms == 60_000
        both = {"request_timeout_ms": 90_000, "default_api_timeout_ms": 5_000}
        assert make(kind, both).default_api_timeout_ms == 5_000
