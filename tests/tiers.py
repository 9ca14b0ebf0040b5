"""The two tiers of the tests, and which of them a test is in.

The first tier is what `make test` runs: tests that are steady, beside one Apache Kafka and one
Spark session in `tests/smoke`. The second is what `make test-system` runs: `tests/system`, and the
half on Apache Kafka of those tests elsewhere that run on both brokers. It also draws fresh examples
for every property test, where the first tier takes the same ones each time, and fewer of some.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
SMOKE = TESTS / "smoke"
SYSTEM = TESTS / "system"
TIERS = ("first", "system", "both")

# Values of parameters that stand for a live Kafka, where a fixture takes either broker.
LIVE_KAFKA = ("kafka", "real", "real_kafka")

# The Spark source's tests run with each group protocol, in the first tier with KIP-848 only.
SPARK = TESTS / "spark"
CLASSIC = ("eager", "cooperative")

# Folders all of whose tests need a part that may be absent.
FOLDERS = {
    SYSTEM / "kafka": "real_kafka",
    SYSTEM / "kafka" / "assignors": "javac",
    SYSTEM / "kafka" / "kerberos": "kerberos",
    SYSTEM / "spark": "spark",
    SYSTEM / "browser": "chromium",
}

# Folders whose tests start processes or wait for the network. One of them that fails may be tried
# again in the first tier (tools/unsteady.py), unless it draws examples or counts records: then its
# file is in COUNT_RECORDS, or it has the mark `counts_records`. Regions, stream applications, the
# Spark source and the programs of users are about records that may be lost or repeated.
MAY_WAIT = ("broker", "cli", "client", "docs", "smoke", "testing")
COUNT_RECORDS = frozenset(
    TESTS / f"{name}.py"
    for name in (
        "broker/test_appends",
        "broker/handlers/test_delete_records",
        "broker/coordination/test_transactions",
        "broker/test_full_disk",
        "broker/coordination/test_full_disk_groups",
        "broker/test_stopping",
        "client/producer/test_accumulator",
        "client/consumer/commits/test_auto_commit",
        "client/test_close_beside_work",
        "client/consumer/commits/test_commit_order",
        "client/consumer/commits/test_commit_parts",
        "client/consumer/test_consumer",
        "client/consumer/membership/test_cooperative_groups",
        "client/test_cut_off",
        "client/consumer/test_deleted_topics",
        "client/consumer/membership/test_draft_groups",
        "client/consumer/test_fetcher",
        "client/net/test_garbled",
        "client/consumer/membership/test_groups",
        "client/consumer/test_poll_waiter",
        "client/consumer/test_iteration",
        "client/test_known_bugs",
        "client/consumer/membership/test_mixed_groups",
        "client/consumer/test_out_of_range",
        "client/consumer/test_partitions",
        "client/producer/test_producer",
        "client/producer/test_producer_close",
        "client/producer/test_producer_dropped",
        "spark/source/fetch/test_ranges",
        "spark/source/fetch/test_read_ahead",
        "client/consumer/test_reading",
        "client/consumer/test_reading_calls",
        "client/test_restart",
        "client/producer/arrow/test_send_arrow",
        "client/producer/test_settled_once",
        "client/consumer/commits/test_stored_offsets",
        "client/producer/transactions/test_transactions",
        "client/producer/test_unanswered",
        "client/test_under_faults",
    )
)


def is_system(item: pytest.Item) -> bool:
    """Whether the test belongs to the second tier."""
    if is_in(item.path, SYSTEM):
        return True
    if is_in(item.path, SMOKE):
        return False
    is_repeated = is_in(item.path, SPARK) and has_value(item, CLASSIC)
    return is_repeated or needs(item, "real_kafka")


def is_chosen(item: pytest.Item, tier: str) -> bool:
    """Whether a run of the tier runs the test."""
    if tier == "both":
        return True
    if tier == "first":
        return not is_system(item)
    return is_system(item) or (is_property(item) and not is_in(item.path, SMOKE))


@cache
def is_in(path: Path, folder: Path) -> bool:
    """Whether a file is somewhere in a folder; ten thousand tests ask that."""
    return folder in path.parents


def needs(item: pytest.Item, part: str) -> bool:
    """Whether the test uses a part that may be absent, one of `tests.conftest.PARTS`."""
    fixtures: list[str] = getattr(item, "fixturenames", [])
    if part in fixtures or part in parts_of(item.path):
        return True
    return part == "real_kafka" and has_value(item, LIVE_KAFKA)


@cache
def parts_of(path: Path) -> frozenset[str]:
    """The parts that all tests of a file need, by the folders it is in."""
    return frozenset(FOLDERS[folder] for folder in path.parents if folder in FOLDERS)


def has_value(item: pytest.Item, values: tuple[str, ...]) -> bool:
    """Whether one of the test's parameters has one of the values."""
    call = getattr(item, "callspec", None)
    given = call.params.values() if call else ()
    return any(value in values for value in given if isinstance(value, str))


def is_first_tier() -> bool:
    """Whether the tests that are imported now run as the first tier's."""
    return settings.get_current_profile_name() == "same"


def examples(first: int, system: int) -> settings:
    """Of a test with very many cases: how many examples each takes, in either tier."""
    return settings(
        max_examples=first if is_first_tier() else system,
        suppress_health_check=[HealthCheck.too_slow],
    )


def is_property(item: pytest.Item) -> bool:
    """Whether Hypothesis draws the test's examples."""
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def may_be_tried_again(item: pytest.Item) -> bool:
    """Whether a failure of the test may have been an accident of the machine."""
    folder = item.path.relative_to(TESTS).parts[0] if TESTS in item.path.parents else ""
    is_counting = item.path in COUNT_RECORDS or item.get_closest_marker("counts_records")
    return folder in MAY_WAIT and not is_property(item) and not is_counting
