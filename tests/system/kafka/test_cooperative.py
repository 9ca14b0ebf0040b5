"""Cooperative groups on a real Kafka: our members among themselves and with other people's."""

from __future__ import annotations

import pytest

from tests.client.cooperative_mixed import STRANGERS, MakeStranger, each_record_is_read_once
from tests.client.cooperative_scenarios import SCENARIOS
from tests.client.group_scenarios import Scenario
from tests.client.loops import on_a_loop
from tests.real_kafka.broker import RealKafka


@pytest.mark.parametrize("play", SCENARIOS)
@on_a_loop
async def test_cooperative_members_on_a_real_kafka(real_kafka: RealKafka, play: Scenario) -> None:
    await play(real_kafka.bootstrap_servers)


@pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")  # kafka-python's own
@pytest.mark.parametrize("make_stranger", STRANGERS)
@pytest.mark.parametrize("stranger_leads", [True, False])
@on_a_loop
async def test_a_cooperative_group_of_our_members_and_others(
    real_kafka: RealKafka, make_stranger: MakeStranger, stranger_leads: bool
) -> None:
    await each_record_is_read_once(real_kafka.bootstrap_servers, make_stranger, stranger_leads)
