"""The control topic as it is found and opened."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kohort.errors import ErrorCode, KafkaError
from kohort.region.control_log import check_topic


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
