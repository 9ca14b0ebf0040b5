"""Fixtures of tests that run on both brokers; a module may have its own under the same names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from tests.client.consumer.reading_cases import COUNT
from tests.real_kafka import foreign
from tests.real_kafka.broker import RealKafka


@pytest.fixture(scope="module", params=["embedded", "kafka"])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "kafka":
        kafka: RealKafka = request.getfixturevalue("real_kafka")
        yield kafka.bootstrap_servers
        return
    folder: Path = tmp_path_factory.mktemp("embedded")
    with EmbeddedBroker(folder) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, name, [b"%d" % number for number in range(COUNT)])
    return name
