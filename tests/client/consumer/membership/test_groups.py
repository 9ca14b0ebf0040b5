"""Groups of our members on the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from tests.client.group_scenarios import PROTOCOL, SCENARIOS, THE_SAME, Scenario
from tests.client.loops import on_a_loop


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    folder: Path = tmp_path_factory.mktemp("embedded")
    with EmbeddedBroker(folder) as broker:
        yield broker


@pytest.mark.parametrize("play", SCENARIOS)
@on_a_loop
async def test_members_on_the_embedded_broker(embedded: EmbeddedBroker, play: Scenario) -> None:
    await play(embedded.bootstrap_servers)


@pytest.mark.parametrize("play", THE_SAME)
@on_a_loop
async def test_members_of_the_consumer_protocol(embedded: EmbeddedBroker, play: Scenario) -> None:
    """L30-L38: joining, reconciling and leaving, as an application sees them (KIP-848)."""
    PROTOCOL.set("consumer")
    await play(embedded.bootstrap_servers)
