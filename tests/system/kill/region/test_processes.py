"""Workers in processes of their own are killed at random, and readers see each record once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real_kafka.broker import RealKafka
from tests.region.torture import Torture, embedded


@pytest.mark.timeout(600)
@pytest.mark.parametrize("protocol", ["cooperative", "eager/reset"])
def test_kills_on_the_embedded_broker(tmp_path: Path, protocol: str) -> None:
    with embedded() as address:
        torture = Torture(address, tmp_path, protocol, seed=1)
        assert torture.run(4) > 0
    assert torture.kills + torture.stops > 0


# A member of KIP-848 that was killed is in its group for 45 s: fewer things happen to it here.
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("protocol", "events"), [("eager", 4), ("consumer", 2)])
def test_kills_on_apache_kafka(
    real_kafka: RealKafka, tmp_path: Path, protocol: str, events: int
) -> None:
    torture = Torture(real_kafka.bootstrap_servers, tmp_path, protocol, seed=2)
    assert torture.run(events) > 0
    assert torture.kills + torture.stops > 0
