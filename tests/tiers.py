"""The two tiers of the tests, and which of them a test is in.

The first tier is what `make test` runs: tests that are steady, beside one Apache Kafka and one
Spark session in `tests/smoke`. The second is what `make test-system` runs: `tests/system`, and the
half on Apache Kafka of those tests elsewhere that run on both brokers. It also draws fresh examples
for every property test, where the first tier takes the same ones each time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SMOKE = TESTS / "smoke"
SYSTEM = TESTS / "system"
TIERS = ("first", "system", "both")

# Values of parameters that stand for a live Kafka, where a fixture takes either broker.
LIVE_KAFKA = ("kafka", "real_kafka")

# Folders all of whose tests need a part that may be absent.
FOLDERS = {
    SYSTEM / "kafka": "real_kafka",
    SYSTEM / "kafka" / "assignors": "javac",
    SYSTEM / "spark": "spark",
}

# Folders whose tests start processes or wait for the network. One of them that fails may be tried
# again in the first tier (tools/unsteady.py), unless it counts records or draws examples.
MAY_WAIT = ("broker", "cli", "client", "demo", "region", "smoke", "spark", "streams", "testing")


def is_system(item: pytest.Item) -> bool:
    """Whether the test belongs to the second tier."""
    if SYSTEM in item.path.parents:
        return True
    return needs(item, "real_kafka") and SMOKE not in item.path.parents


def is_chosen(item: pytest.Item, tier: str) -> bool:
    """Whether a run of the tier runs the test."""
    if tier == "both":
        return True
    if tier == "first":
        return not is_system(item)
    return is_system(item) or (is_property(item) and SMOKE not in item.path.parents)


def needs(item: pytest.Item, part: str) -> bool:
    """Whether the test uses a part that may be absent: `real_kafka`, `spark`, `javac`, `sphinx`."""
    fixtures: list[str] = getattr(item, "fixturenames", [])
    if part in fixtures or any(FOLDERS.get(folder) == part for folder in item.path.parents):
        return True
    call = getattr(item, "callspec", None)
    values = call.params.values() if call else ()
    return part == "real_kafka" and any(
        value in LIVE_KAFKA for value in values if isinstance(value, str)
    )


def is_property(item: pytest.Item) -> bool:
    """Whether Hypothesis draws the test's examples."""
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def may_be_tried_again(item: pytest.Item) -> bool:
    """Whether a failure of the test may have been an accident of the machine."""
    folder = item.path.relative_to(TESTS).parts[0] if TESTS in item.path.parents else ""
    is_counting = item.get_closest_marker("counts_records") is not None
    return folder in MAY_WAIT and not is_property(item) and not is_counting
