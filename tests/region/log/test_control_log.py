"""The control topic as it is found and opened."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
from immutables import Map

from kohort.errors import ErrorCode, KafkaError
from kohort.region.log.control import ControlLog
from kohort.region.log.policies import check_topic
from kohort.region.machines.events import Asked
from kohort.region.machines.fold import fold_in
from kohort.region.machines.records import RESET, Contribution, OperatorId, RegionRecord, ResetDone
from tests.region.harness import P, Region


class Admin:
    """Knows a topic only after it was asked some times."""

    def __init__(self, unknown: int, code: ErrorCode) -> None:
        self.asked = 0
        self._unknown = unknown
        self._code = code

    async def describe_topics(self, names: list[str]) -> dict[str, list[int]]:
        self.asked += 1
        if self.asked <= self._unknown:
            raise KafkaError(self._code, names[0])
        return {name: [0] for name in names}

    async def describe_configs(self, resources: list[Any]) -> dict[Any, Any]:
        entry = SimpleNamespace(value="compact")
        return {each: {"cleanup.policy": entry} for each in resources}


def check(admin: Admin) -> None:
    asyncio.run(check_topic(cast("Any", admin), "r"))


def test_a_topic_that_another_operator_has_just_made_is_waited_for() -> None:
    admin = Admin(3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    check(admin)
    assert admin.asked == 4


def test_a_refusal_is_raised_at_once() -> None:
    admin = Admin(3, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        check(admin)
    assert admin.asked == 1


def stale(kind: type[RegionRecord], operator: OperatorId) -> RegionRecord:
    """Return what an operator says of the first attempt."""
    if kind is ResetDone:
        return ResetDone(operator, 10**6, 1)
    return Contribution(operator, 10**6, 1, 1, Map({P: 5}))


@pytest.mark.parametrize(
    ("kind", "level"), [(ResetDone, logging.INFO), (Contribution, logging.WARNING)]
)
def test_an_operator_that_a_second_reset_overtakes_is_no_warning(
    kind: type[RegionRecord], level: int, caplog: pytest.LogCaptureFixture
) -> None:
    """What it has handed over for the attempt before is one: its records are processed again."""
    region = Region()
    region.elect()
    a = region.process("a", owns=[P])
    region.control(Asked(RESET))
    region.run()
    caplog.set_level(logging.DEBUG, logger="kohort.region")
    _, facts = fold_in(region.state, region.state.offset, stale(kind, a.id))
    ControlLog("r", {})._note(facts)
    (told,) = caplog.records
    assert told.levelno == level
    assert "is stale: the region is at attempt 2" in told.getMessage()
