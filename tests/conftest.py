"""What all tests share: a real Apache Kafka, and no way to leave a test out unseen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.real_kafka.broker import RealKafka

TESTS = Path(__file__).parent

# One process runs all tests of a file; these begin first, so that nobody waits for one at the end.
LONGEST = tuple(
    TESTS / name
    for name in (
        "simulation/test_seeds.py",
        "simulation/test_determinism.py",
        "simulation/test_planted_bugs.py",
        "real_kafka/test_java_clients.py",
        "dialogues/test_dialogues.py",
        "member_dialogues/test_member_dialogues.py",
        "usage/test_usage.py",
    )
)

# A property test has as long as the whole test has: the machine may be busy with something else.
settings.register_profile("kohort", deadline=None, print_blob=True)
settings.load_profile("kohort")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--leave-out PART` deselects the tests in tests/PART and those that use the fixture PART."""
    parts = ["real_kafka", "real_kafka/assignors", "spark"]
    parser.addoption("--leave-out", action="append", default=[], choices=parts)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what was asked to be left out, so that the closing line counts it."""
    parts: list[str] = config.getoption("--leave-out")
    out = [item for item in items if any(belongs_to(item, part) for part in parts)]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]
    items.sort(key=lambda item: item.path not in LONGEST)


def belongs_to(item: pytest.Item, part: str) -> bool:
    """Whether the test is in the part's folder or uses the fixture that has its name."""
    fixtures: list[str] = getattr(item, "fixturenames", [])
    return (TESTS / part) in item.path.parents or part in fixtures


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With KOHORT_REQUIRE_ALL=1 a skipped test fails the run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("KOHORT_REQUIRE_ALL") and reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def real_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """A running Apache Kafka 4.3 that all tests share: use topics and groups of your own names."""
    with RealKafka(tmp_path_factory.mktemp("real-kafka")) as kafka:
        yield kafka
