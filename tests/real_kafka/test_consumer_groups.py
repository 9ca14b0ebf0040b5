"""Groups of our members on a real Kafka, among themselves and with other people's."""

from __future__ import annotations

import pytest

from tests.client.group_scenarios import SCENARIOS, Scenario
from tests.client.loops import on_a_loop
from tests.real_kafka.broker import RealKafka


@pytest.mark.parametrize("play", SCENARIOS)
@on_a_loop
async def test_members_on_a_real_kafka(real_kafka: RealKafka, play: Scenario) -> None:
    await play(real_kafka.bootstrap_servers)
