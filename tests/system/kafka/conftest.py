"""Fixtures of tests of transactions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.broker import EmbeddedBroker
from tests.real_kafka import foreign
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.transactional import SETTINGS


@pytest.fixture(
    scope="module",
    params=[("kafka", 1), ("kafka", 2), ("embedded", 1), ("embedded", 2)],
    ids=["version-1", "version-2", "embedded-version-1", "embedded-version-2"],
)
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealKafka | EmbeddedBroker]:
    """A broker with one of the two versions of transactions; use names of your own."""
    which, version = request.param
    folder = tmp_path_factory.mktemp(f"transactional-{which}")
    if which == "embedded":
        with EmbeddedBroker(folder, transaction_version=version) as broker:
            yield broker
        return
    options = ["--feature", f"transaction.version={version}"]
    with RealKafka(folder, SETTINGS, format_options=options) as started:
        yield started


@pytest.fixture
def topic(kafka: RealKafka) -> str:
    """A topic with one partition."""
    return foreign.new_topic(kafka.bootstrap_servers)
