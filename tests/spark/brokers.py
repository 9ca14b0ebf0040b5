"""Both brokers, one after the other, for the tests of a module that imports the fixture."""

from __future__ import annotations

import pytest

from tests.real_kafka.broker import RealKafka


@pytest.fixture(params=["embedded", "kafka"])
def bootstrap(request: pytest.FixtureRequest, bootstrap: str) -> str:
    """The address of one broker and then of the other."""
    if request.param == "embedded":
        return bootstrap
    kafka: RealKafka = request.getfixturevalue("real_kafka")
    return kafka.bootstrap_servers
