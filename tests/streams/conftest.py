"""The brokers that the runtime of stream applications is tested with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.broker import EmbeddedBroker


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("streams-broker")) as broker:
        yield broker


@pytest.fixture(params=["embedded", "real_kafka"])
def servers(request: pytest.FixtureRequest) -> str:
    address = request.getfixturevalue(request.param).bootstrap_servers
    assert isinstance(address, str)
    return address
