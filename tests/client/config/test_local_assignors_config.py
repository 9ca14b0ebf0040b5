"""`group.local.assignors`, the key that KIP-848 proposed for assignors of a client's own (L39)."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.client import AsyncConsumer
from kohort.client.config.definitions import ConsumerConfig, make
from kohort.errors import ConfigError
from kohort.group.assignors import RangeAssignor, StickyAssignor
from tests.system.clients.local_assignor import ByRank


def config(**settings: object) -> ConsumerConfig:
    return make(ConsumerConfig, {"group_id": "g", "group_protocol": "consumer"} | settings)


def test_objects_and_names_in_order_of_preference() -> None:
    own = ByRank(1)
    found = config(group_local_assignors=[own, "sticky", "range"]).local_assignors()
    assert found[0] is own
    assert [type(each) for each in found[1:]] == [StickyAssignor, RangeAssignor]


def test_names_as_kafka_writes_a_list() -> None:
    found = config(group_local_assignors="sticky, range").local_assignors()
    assert [each.name for each in found] == ["sticky", "range"]


def test_none_unless_asked_for() -> None:
    assert config().local_assignors() == []


def test_l39_the_key_needs_the_protocol() -> None:
    with pytest.raises(ConfigError, match=r"group\.local\.assignors needs group"):
        AsyncConsumer(group_id="g", group_local_assignors=[ByRank(1)])


def test_l39_the_classic_key_names_this_one() -> None:
    with pytest.raises(ConfigError, match=r"group\.local\.assignors"):
        AsyncConsumer(
            group_id="g", group_protocol="consumer", partition_assignment_strategy=[ByRank(1)]
        )


@pytest.mark.parametrize("wrong", [[ByRank], [3], 3, ["nobody-has-this"]])
def test_what_is_no_assignor_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"group\.local\.assignors"):
        config(group_local_assignors=wrong)


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two assignors with the same name"):
        config(group_local_assignors=[ByRank(1), ByRank(2)])


@pytest.mark.parametrize("given", [StickyAssignor(), StickyAssignor, [StickyAssignor], "sticky"])
def test_one_alone_needs_no_list(given: Any) -> None:
    (found,) = config(group_local_assignors=given).local_assignors()
    assert isinstance(found, StickyAssignor)
    (found,) = make(ConsumerConfig, {"partition_assignment_strategy": given}).assignors()
    assert isinstance(found, StickyAssignor)


@pytest.mark.parametrize("wrong", [int, ByRank])
def test_a_class_that_makes_no_assignor_is_refused(wrong: type) -> None:
    with pytest.raises(ConfigError, match=r"int makes no Assignor|ByRank cannot be called without"):
        config(group_local_assignors=wrong)
