"""What tests with consumers of several kinds share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kohort.broker import EmbeddedBroker
from kohort.group.events import GroupEvent
from tests.system.clients.group import Driver


@pytest.fixture
def driver() -> Iterator[Driver]:
    """Runs members in the test's thread; all leave in the end, and librdkafka's are freed."""
    made = Driver()
    yield made
    made.leave_all()
    gc.collect()


@pytest.fixture
def facts(broker: EmbeddedBroker) -> list[GroupEvent]:
    """What the broker's groups told since the test began."""
    seen: list[GroupEvent] = []
    broker.subscribe(seen.append)
    return seen
