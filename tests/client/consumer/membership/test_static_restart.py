"""A classic static member restarts with another topic: the log says that it is not read."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import pytest

from kohort import Consumer
from tests.broker.processes import eventually
from tests.real_kafka import foreign

UNREAD = "is back without a rebalance"


def member(servers: str, group: str, instance: str, topics: Iterable[str], **more: Any) -> Consumer:
    settings = {"group_instance_id": instance, "heartbeat_interval_ms": 100, **more}
    consumer = Consumer(bootstrap_servers=servers, group_id=group, **settings)
    consumer.subscribe(topics)
    return consumer


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if UNREAD in each.getMessage()]


def topics_of(*consumers: Consumer) -> set[str]:
    for each in consumers:
        each.poll(20)
    return {where.topic for each in consumers for where in each.assignment()}


@pytest.mark.parametrize("restarts", ["leader", "follower"])
def test_a_topic_that_a_restarted_static_member_adds_is_named_until_it_asks_for_a_rebalance(
    bootstrap: str, restarts: str, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = foreign.new_topic(bootstrap, 2), foreign.new_topic(bootstrap)
    first = member(bootstrap, old, "first", [old])
    eventually(lambda: topics_of(first) == {old}, "the leader has all")
    with first, member(bootstrap, old, "second", [old]) as second:
        eventually(
            lambda: topics_of(first, second) == {old} and bool(second.assignment()),
            "both have a share",
        )
        going, stays = (first, second) if restarts == "leader" else (second, first)
        instance = "first" if restarts == "leader" else "second"
        going.close()
        assert not warnings(caplog)
        caplog.set_level(logging.WARNING, "kohort.client")
        with member(bootstrap, old, instance, [old, new]) as again:
            eventually(lambda: bool(topics_of(again, stays) and warnings(caplog)), "a warning")
            (line,) = warnings(caplog)
            assert f"group {old}: the static member {instance} is back" in line
            assert f"no member reads {new}. Call enforce_rebalance()" in line
            again.enforce_rebalance("one more topic")
            eventually(lambda: new in topics_of(again, stays), "the new topic is read")
    assert len(warnings(caplog)) == 1


def test_a_static_member_that_has_no_share_of_a_topic_that_others_read_is_not_warned_of(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = foreign.new_topic(bootstrap)
    caplog.set_level(logging.DEBUG, "kohort.client")
    with member(bootstrap, topic, "first", [topic]) as first:
        eventually(lambda: topics_of(first) == {topic}, "a share")
        with member(bootstrap, topic, "second", [topic]) as second:
            eventually(
                lambda: (
                    bool(topics_of(first, second)) and first.generation_id == second.generation_id
                ),
                "both are in",
            )
            eventually(lambda: topics_of(first, second) == {topic}, "one has the share")
    assert not warnings(caplog)
