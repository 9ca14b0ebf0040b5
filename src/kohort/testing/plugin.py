"""The pytest plugin: a Kafka for tests, without a container.

pytest finds it by its entry point. Its dependencies are imported only when a test requests a
fixture, so it costs nothing in sessions without its fixtures.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kohort.testing.async_harness import AsyncKafkaHarness
    from kohort.testing.harness import KafkaHarness
    from kohort.testing.process import KafkaProcess

_PROTOCOLS = ("classic", "consumer")
_REACHED_WITHIN_S = 5.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("kohort", "Kafka for tests (kohort)")
    group.addoption(
        "--kohort-bootstrap-servers",
        metavar="HOST:PORT",
        help="use this Kafka instead of an embedded broker",
    )
    group.addoption(
        "--kohort-protocols",
        metavar="NAMES",
        default=",".join(_PROTOCOLS),
        help="group protocols that tests with the fixture kohort_protocol run with"
        " (default: %(default)s)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    config.addinivalue_line(
        "markers",
        "kohort_topic(partitions=1, configs={...}): how the fixture kohort_topic makes its topic",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that request a group protocol with each protocol."""
    if "kohort_protocol" not in metafunc.fixturenames:
        return
    given = str(metafunc.config.getoption("--kohort-protocols"))
    names = [name.strip() for name in given.split(",")]
    unknown = set(names) - set(_PROTOCOLS)
    if unknown:
        raise pytest.UsageError(
            f"--kohort-protocols={given}: {', '.join(sorted(unknown))} is not one of"
            f" {', '.join(_PROTOCOLS)}"
        )
    metafunc.parametrize("kohort_protocol", names)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Remove faults that a test left behind: the next test uses the same broker."""
    harness = getattr(item, "funcargs", {}).get("kohort_broker")
    if harness is not None and harness.is_embedded:
        harness.faults.clear()


@pytest.fixture(scope="session")
def kohort_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaHarness]:
    """A Kafka for the whole session: an embedded broker, or the one of --kohort-bootstrap-servers.

    Each worker of pytest-xdist has its own embedded broker.
    """
    from kohort.broker import EmbeddedBroker
    from kohort.testing.harness import KafkaHarness

    servers = request.config.getoption("--kohort-bootstrap-servers")
    if servers is not None:
        if not servers.strip():
            pytest.fail(
                "--kohort-bootstrap-servers is empty: leave it out, or give the address of a Kafka",
                pytrace=False,
            )
        yield _reached(KafkaHarness(servers))
        return
    folder = tmp_path_factory.mktemp("kohort")
    with EmbeddedBroker(folder, group_initial_rebalance_delay_ms=0) as broker:
        yield KafkaHarness(broker.bootstrap_servers, broker)


def _reached(harness: KafkaHarness) -> KafkaHarness:
    """Return a harness whose Kafka answers; otherwise each test would wait for it."""
    from kohort.testing.harness_clients import HarnessError

    try:
        harness.reach(_REACHED_WITHIN_S)
    except HarnessError as error:
        why = str(error)
    else:
        return harness
    pytest.fail(f"--kohort-bootstrap-servers: {why}", pytrace=False)


@pytest.fixture(scope="session")
def kohort_async_broker(kohort_broker: KafkaHarness) -> AsyncKafkaHarness:
    """The same Kafka as kohort_broker, for coroutine tests."""
    from kohort.testing.async_harness import AsyncKafkaHarness

    return AsyncKafkaHarness(kohort_broker)


@pytest.fixture
def kohort_topic(request: pytest.FixtureRequest, kohort_broker: KafkaHarness) -> Iterator[str]:
    """The name of the test's own topic, deleted at its end; see the marker kohort_topic."""
    marker = request.node.get_closest_marker("kohort_topic")
    wanted = dict(marker.kwargs) if marker is not None else {}
    unknown = wanted.keys() - {"partitions", "configs"}
    if unknown or (marker is not None and marker.args):
        raise pytest.UsageError("the marker kohort_topic takes partitions= and configs=")
    name = kohort_broker.create_topic(**wanted)
    yield name
    kohort_broker.delete_topic(name)


@pytest.fixture
def kohort_group(kohort_broker: KafkaHarness) -> Iterator[str]:
    """The id of the test's own group; at its end the group is deleted with all members."""
    name = f"group-{uuid.uuid4().hex[:12]}"
    yield name
    kohort_broker.delete_group(name)


@pytest.fixture
def kohort_cluster(tmp_path: Path) -> Iterator[KafkaProcess]:
    """A broker for one test in its own process, which the test may kill and restart.

    It is running when the test begins.
    """
    from kohort.testing.process import KafkaProcess

    with KafkaProcess(tmp_path / "kohort-data") as process:
        yield process


@pytest.fixture(scope="session")
def kohort_spark() -> Iterator[SparkSession]:
    """A local Spark session in which the source and the sink "kohort" are registered.

    A session created earlier by a test is reused unchanged and not stopped.
    """
    from kohort.testing.spark import spark_session

    with spark_session() as spark:
        yield spark
