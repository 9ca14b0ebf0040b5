"""The examples of docs/clients.md and docs/producer.md do what the pages say."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort import EmbeddedBroker, Producer
from tests.docs.test_readme import python_blocks

DOCS = Path(__file__).parents[2] / "docs"
CLIENTS = python_blocks((DOCS / "clients.md").read_text())
PRODUCERS = python_blocks((DOCS / "producer.md").read_text())
VALUES = ('{"delay": 1}', "no JSON", '{"delay": 3}')
DEADLINE_S = 100


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedBroker(tmp_path_factory.mktemp("embedded")) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for value in VALUES:
                producer.send("flights", value.encode(), partition=0)
        yield broker.bootstrap_servers


def started(code: str, bootstrap: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-c", code.replace("localhost:9092", bootstrap)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def printed(code: str, bootstrap: str) -> str:
    with started(code, bootstrap) as program:
        said, _ = program.communicate(timeout=DEADLINE_S)
    assert program.returncode == 0
    return said


@pytest.mark.parametrize("number", [0, 1, 4])
def test_each_loop_prints_every_record_once(bootstrap: str, number: int) -> None:
    said = printed(CLIENTS[number], bootstrap)
    assert [line.count("JSON") or line.count("delay") for line in said.splitlines()] == [1, 1, 1]


def test_the_service_ends_at_sigterm(bootstrap: str) -> None:
    with started(CLIENTS[2], bootstrap) as service:
        assert service.stdout is not None
        for _ in VALUES:
            service.stdout.readline()
        service.send_signal(signal.SIGTERM)
        assert service.wait(DEADLINE_S) == 0


def test_the_poison_record_is_skipped(bootstrap: str) -> None:
    lines = printed(CLIENTS[3], bootstrap).splitlines()
    assert lines[0] == "{'delay': 1}"
    assert lines[1].startswith("skipped: TopicPartition")
    assert lines[2] == "{'delay': 3}"


def test_the_producers_send(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        assert "topic='flights'" in printed(PRODUCERS[0], broker.bootstrap_servers)
        assert printed(PRODUCERS[1], broker.bootstrap_servers).startswith("2 rows in ")


def test_every_example_is_run() -> None:
    assert len(CLIENTS) == 5
    assert len(PRODUCERS) == 2
