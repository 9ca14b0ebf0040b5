"""Cooperative groups on the embedded broker: our members, alone and with other clients'."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from tests.client.cooperative_mixed import STRANGERS, MakeStranger, each_record_is_read_once
from tests.client.cooperative_scenarios import SCENARIOS
from tests.client.group_scenarios import Scenario
from tests.client.loops import on_a_loop


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    folder: Path = tmp_path_factory.mktemp("embedded")
    with EmbeddedBroker(folder) as broker:
        yield broker


@pytest.mark.parametrize("play", SCENARIOS)
@on_a_loop
async def test_cooperative_members_on_the_embedded_broker(
    embedded: EmbeddedBroker, play: Scenario
) -> None:
    await play(embedded.bootstrap_servers)


@pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")  # kafka-python's own
@pytest.mark.parametrize("make_stranger", STRANGERS)
@pytest.mark.parametrize("stranger_leads", [True, False])
@on_a_loop
async def test_a_cooperative_group_of_our_members_and_others(
    embedded: EmbeddedBroker, make_stranger: MakeStranger, stranger_leads: bool
) -> None:
    await each_record_is_read_once(embedded.bootstrap_servers, make_stranger, stranger_leads)
