from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kohort.broker import EmbeddedBroker
from kohort.spark.source import member as source_member
from tests.spark.playing import PROTOCOLS, PlayedQuery, options


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Processes that are killed cannot remove what they made: let it end with the tests."""
    folder = str(tmp_path_factory.mktemp("temporary"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("broker")
    broker = EmbeddedBroker(
        folder, group_consumer_heartbeat_interval_ms=100, group_consumer_session_timeout_ms=6_000
    )
    with broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(request: pytest.FixtureRequest, bootstrap: str) -> str:
    """A topic of the test's own with four partitions."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 4, 1)])[name].result(60)
    return name


Start = Callable[..., PlayedQuery]


@pytest.fixture(params=PROTOCOLS)
def start(
    request: pytest.FixtureRequest, bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Start]:
    """Starts queries on the test's topic and stops them at the end; once for each protocol.

    They may share their group, as they name a checkpoint. Spark writes none here, so that only its
    next call tells that a batch is over, and no word is worth waiting for at the end.
    """
    queries: list[PlayedQuery] = []
    if "listener" not in request.fixturenames:
        monkeypatch.setattr(source_member, "LAST_MESSAGE_WAIT_S", 0.0)

    def make(last: dict[str, object] | None = None, **more: str) -> PlayedQuery:
        more.setdefault("checkpointLocation", "/is-not-there")
        settings = options(bootstrap, topic, request.param, **more)
        queries.append(PlayedQuery(settings, last))
        return queries[-1]

    yield make
    for query in queries:
        query.reader.stop()


@pytest.fixture(autouse=True)
def keep_signals() -> Iterator[None]:
    """A reader takes SIGTERM over, for the process that it has to itself in Spark."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
