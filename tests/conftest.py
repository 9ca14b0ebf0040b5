"""What all tests share: a real Apache Kafka, and no way to leave a test out unseen."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from tests.real_kafka.broker import RealKafka

TESTS = Path(__file__).parent

# One process runs all tests of a file; these begin first, so that nobody waits for one at the end.
LONGEST = tuple(
    TESTS / name
    for name in (
        "usage/test_usage.py",
        "region/test_seeds.py",
        "spark/test_nothing_skipped.py",
        "spark/differential/test_differential.py",
        "spark/test_spark_writer.py",
        "wire/test_bad_bytes.py",
        "spark/test_spark_cluster.py",
        "simulation/test_seeds.py",
        "broker/test_interrupted_broker.py",
        "wire/test_oracle.py",
        "simulation/test_exploring.py",
        "real_kafka/test_migration.py",
        "spark/test_restored_and_added.py",
        "spark/test_connect.py",
        "region/test_planted.py",
    )
)

# A property test has as long as the whole test has: the machine may be busy with something else.
settings.register_profile("kohort", deadline=None, print_blob=True)
settings.load_profile("kohort")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--leave-out PART` deselects the tests in tests/PART and those that use the fixture PART."""
    parts = ["real_kafka", "real_kafka/assignors", "spark", "sphinx"]
    parser.addoption("--leave-out", action="append", default=[], choices=parts)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what was asked to be left out, so that the closing line counts it."""
    assert all(path.is_file() for path in LONGEST), "LONGEST names a file that is gone"
    parts: list[str] = [*config.getoption("--leave-out"), *not_installed()]
    out = [item for item in items if any(belongs_to(item, part) for part in parts)]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]
    items.sort(key=lambda item: item.path not in LONGEST)


def not_installed() -> list[str]:
    """The parts whose extra is missing: that of the documentation is no need of any other test."""
    return [] if find_spec("sphinx") else ["sphinx"]


def pytest_report_header() -> list[str]:
    """Say what is left out, and why."""
    return [
        f"left out: tests that need {part} (pip install kohort[docs])" for part in not_installed()
    ]


def belongs_to(item: pytest.Item, part: str) -> bool:
    """Whether the test is in the part's folder or uses the fixture that has its name."""
    fixtures: list[str] = getattr(item, "fixturenames", [])
    return (TESTS / part) in item.path.parents or part in fixtures


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Collect what a file may leave open, by its marks, at its end: else a later test is blamed."""
    yield
    is_last = nextitem is None or nextitem.path != item.path
    if is_last and any(
        "ResourceWarning" in str(m.args) for m in item.iter_markers("filterwarnings")
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


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
