"""`kohort topics` on the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from tests.cli import topic_scenarios as scenarios


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with EmbeddedBroker(folder) as broker:
        yield broker.bootstrap_servers


def test_a_topic_is_made_changed_and_deleted(bootstrap: str) -> None:
    scenarios.a_topic_is_made_changed_and_deleted(bootstrap)


def test_settings_are_changed_one_by_one(bootstrap: str) -> None:
    scenarios.settings_are_changed_one_by_one(bootstrap)
