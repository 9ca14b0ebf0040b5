"""Which settings are allowed with which group protocol (L39)."""

from __future__ import annotations

import asyncio
import math
import re

import pytest

from kohort.client import AsyncConsumer, Consumer
from kohort.client.config.definitions import ConsumerConfig, make
from kohort.client.consumer.membership.consumer import whole_name
from kohort.client.consumer.membership.factory import member_config
from kohort.errors import ConfigError
from kohort.group.member.config import MemberConfig
from kohort.spark.options.source import OptionError, parse_options


def test_l39_what_the_broker_decides_cannot_be_set() -> None:
    for name, value in (
        ("session.timeout.ms", "45000"),
        ("heartbeat.interval.ms", 3_000),
        ("partition.assignment.strategy", "range"),
    ):
        settings = {"group.id": "g", "group.protocol": "consumer", name: value}
        with pytest.raises(ConfigError, match=re.escape(name)):
            AsyncConsumer.from_config(settings)


def test_l39_an_assignor_of_the_broker_needs_its_protocol() -> None:
    AsyncConsumer(group_id="g", group_protocol="consumer", group_remote_assignor="range")
    with pytest.raises(ConfigError, match=r"group\.remote\.assignor"):
        AsyncConsumer(group_id="g", group_remote_assignor="range")


def test_the_classic_protocol_is_what_one_gets_without_asking() -> None:
    with Consumer(group_id="g") as consumer:
        assert consumer._config.group_protocol == "classic"
    with pytest.raises(ConfigError, match=r"group\.protocol"):
        AsyncConsumer(group_id="g", group_protocol="streams")  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(
    ("session_ms", "interval_ms"), [(45_000, 3_000), (6_000, 1_000), (6_000, 5_999), (10, 9)]
)
def test_l9_a_member_beats_soon_after_a_rebalance_and_soon_after_the_end_of_a_session(
    session_ms: int, interval_ms: int
) -> None:
    """The client's code explains why; a heartbeat is hardly later than requested."""

    async def made() -> MemberConfig:
        settings = {
            "group_id": "g",
            "heartbeat_interval_ms": interval_ms,
            "session_timeout_ms": session_ms,
        }
        return member_config(make(ConsumerConfig, settings))

    config = asyncio.run(made())
    assert config.until_first_heartbeat_ms <= interval_ms // 5
    assert config.heartbeat_interval_ms <= interval_ms * 1.1
    beats = round(session_ms / config.heartbeat_interval_ms)
    after_ms = beats * config.heartbeat_interval_ms - session_ms
    assert 0 <= after_ms < 100
    assert beats == math.ceil(session_ms / interval_ms)
    assert config.wall_clock_ahead_ms is not None


OPTIONS = {
    "kafka.bootstrap.servers": "localhost:9092",
    "kafka.group.id": "g",
    "kafka.group.protocol": "consumer",
    "subscribe": "flights",
}


def test_a_query_in_spark_takes_the_protocol() -> None:
    options = parse_options({**OPTIONS, "kafka.group.remote.assignor": "uniform"})
    assert options.settings["group.protocol"] == "consumer"
    with pytest.raises(OptionError, match=r"session\.timeout\.ms"):
        parse_options({**OPTIONS, "kafka.session.timeout.ms": "45000"})


NAMES = ("a", "ab", "b", "abc", "a.b", "a.", "a..", "xa", "x", "", "a|b", "bc")
PATTERNS = ("a", "a.*", "a|b", "a|b.*", r"a\.", r"a\.*", "a$", "(a|x).*", "[ab].*", ".*", "^a")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_k50_a_pattern_means_the_same_topics_with_both_protocols(pattern: str) -> None:
    """The client matches from the start of a name, the broker the whole name."""
    here = {name for name in NAMES if re.match(pattern, name)}
    assert {name for name in NAMES if re.fullmatch(whole_name(pattern), name)} == here


def test_k50_a_pattern_that_is_whole_already_stays_as_it_is() -> None:
    assert whole_name("flights-.*") == "flights-.*"
