"""Our members in groups that a real Kafka moves to the consumer protocol and back."""

from __future__ import annotations

import pytest

from tests.clients.migration import (
    PAIRS,
    librdkafka_leads_a_group_that_stays,
    there_and_back,
)
from tests.real_kafka.broker import RealKafka

OURS = [name for name in PAIRS if not name.startswith("librdkafka-")]


@pytest.mark.parametrize("pair", OURS)
def test_a_running_group_is_moved_there_and_back(real_kafka: RealKafka, pair: str) -> None:
    """K40, K45, K47: the same as on our broker."""
    there_and_back(real_kafka.bootstrap_servers, *PAIRS[pair])


def test_a_group_that_librdkafka_leads_stays(real_kafka: RealKafka) -> None:
    """K41: the same as on our broker."""
    librdkafka_leads_a_group_that_stays(real_kafka.bootstrap_servers)
