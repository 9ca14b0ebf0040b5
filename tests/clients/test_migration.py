"""Running groups are moved to the consumer protocol and back on the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.broker import EmbeddedBroker
from kohort.group.events import GroupEvent, ProtocolChanged
from tests.clients.migration import (
    PAIRS,
    librdkafka_leads_a_group_that_stays,
    there_and_back,
)


@pytest.fixture
def facts() -> list[GroupEvent]:
    return []


@pytest.fixture
def broker(facts: list[GroupEvent]) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(group_consumer_heartbeat_interval_ms=100) as running:
        running.subscribe(facts.append)
        yield running


@pytest.mark.parametrize("pair", PAIRS)
def test_a_running_group_is_moved_there_and_back(
    broker: EmbeddedBroker, facts: list[GroupEvent], pair: str
) -> None:
    """K40, K45, K47."""
    there_and_back(broker.bootstrap_servers, *PAIRS[pair])
    moves = [fact.protocol for fact in facts if isinstance(fact, ProtocolChanged)]
    assert moves == ["consumer", "classic"]


def test_a_group_that_librdkafka_leads_stays(broker: EmbeddedBroker) -> None:
    """K41."""
    librdkafka_leads_a_group_that_stays(broker.bootstrap_servers)
