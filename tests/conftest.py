"""What all tests share: a real Apache Kafka, and no way to leave a test out unseen."""

from __future__ import annotations

import gc
import os
import signal
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from tests import tiers
from tests.real_kafka.broker import RealKafka
from tests.reporting import TRIED_AGAIN, Reporting

TESTS = Path(__file__).parent

# One process runs all tests of a file; these begin first, so that nothing waits for one at the end.
LONGEST = frozenset(
    TESTS / name
    for name in (
        "usage/test_usage.py",
        "smoke/test_spark.py",
        "wire/test_bad_bytes.py",
        "region/test_workers.py",
        "spark/source/test_nothing_skipped.py",
        "testing/test_plugin.py",
    )
)

# The first tier is a function of the tree, so its examples are the same each time; the second tier
# draws others. A property test has as long as the whole test has: the machine may be busy.
settings.register_profile("same", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("fresh", deadline=None, print_blob=True)
settings.load_profile("same")

# Packages that one kind of tests needs, and what brings them.
OPTIONAL = {"sphinx": "kohort[docs]", "fastapi": "kohort[dev]"}

# What may be absent: tests use a fixture of that name, or are in a folder that `tiers` names.
PARTS = ("real_kafka", "spark", "javac", "chromium", "delta_spark", "kerberos", *OPTIONAL)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--tier` chooses tests, `--leave-out` deselects those that need something absent."""
    group = parser.getgroup("kohort's own tests")
    group.addoption("--tier", choices=tiers.TIERS, default="both")
    group.addoption("--leave-out", action="append", default=[], choices=PARTS)
    group.addoption("--files", choices=["slowest", "all"], default="")
    group.addoption("--failures", type=Path, default=None)


def pytest_configure(config: pytest.Config) -> None:
    """Describe the mark, and have the process that sees every result add them up.

    A shell lets what it starts in the background ignore SIGINT, and all its children inherit that:
    tests interrupt processes of theirs.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "counts_records: a failure may be a record lost or repeated")
    if not hasattr(config, "workerinput"):
        reporting = Reporting(config.getoption("--files"), config.getoption("--failures"))
        config.pluginmanager.register(reporting, "kohort-reporting")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what the tier or `--leave-out` does not want, so that the closing line counts it."""
    assert all(path.is_file() for path in LONGEST), "LONGEST names a file that is gone"
    tier: str = config.getoption("--tier")
    parts: list[str] = [*config.getoption("--leave-out"), *not_installed()]
    chosen = [
        item
        for item in items
        if tiers.is_chosen(item, tier) and not any(tiers.needs(item, part) for part in parts)
    ]
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = sorted(chosen, key=lambda item: item.path not in LONGEST)
    for item in items:
        item.user_properties.append((TRIED_AGAIN, tiers.may_be_tried_again(item)))


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over the tests themselves: it looks at them each time."""
    gc.collect()
    gc.freeze()


def not_installed() -> dict[str, str]:
    """The parts that are missing and no other test needs, each with what brings it."""
    missing = [name for name in OPTIONAL if find_spec(name) is None]
    absent = {name: f"pip install '{OPTIONAL[name]}'" for name in missing}
    if not os.environ.get("KOHORT_DELTA_SPARK"):
        absent["delta_spark"] = "KOHORT_DELTA_SPARK names no Python with it, see CONTRIBUTING.md"
    return absent


def pytest_report_header() -> list[str]:
    """Say what is left out, and why."""
    return [f"left out: tests that need {part} ({how})" for part, how in not_installed().items()]


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
