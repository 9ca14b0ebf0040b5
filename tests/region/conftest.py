"""A broker for the tests of a file, and a topic of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.broker import EmbeddedBroker
from tests.region.regions import new_topic


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with EmbeddedBroker(offsets_topic_num_partitions=4) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(address: str) -> str:
    """The name of a topic with four partitions."""
    return new_topic(address)


@pytest.fixture(params=["address", "real_kafka"])
def servers(request: pytest.FixtureRequest) -> str:
    """The embedded broker, and in the second tier Apache Kafka."""
    found = request.getfixturevalue(request.param)
    return str(getattr(found, "bootstrap_servers", found))
