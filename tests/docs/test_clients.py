"""The examples of docs/clients.md and docs/producer.md do what the pages say."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort import EmbeddedBroker, Producer
from tests.docs.test_readme import python_blocks
from tests.real_kafka.broker import RealKafka

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


def example(words: str) -> str:
    """The one example that has these words."""
    (code,) = [code for code in CLIENTS if words in code]
    return code


def said_values(said: str) -> list[int]:
    return [line.count("JSON") or line.count("delay") for line in said.splitlines()]


@pytest.mark.parametrize("group", ["departures", "archive", "async", "interrupted"])
def test_each_loop_prints_every_record_once(bootstrap: str, group: str) -> None:
    """On a busy machine a loop may end before it has partitions: then it is given longer."""
    code = example(f'group_id="{group}"')
    assert "consumer_timeout_ms=5_000" in code
    said = printed(code, bootstrap) or printed(code.replace("=5_000", "=50_000"), bootstrap)
    assert said_values(said) == [1, 1, 1]


def test_the_listener_is_told(bootstrap: str) -> None:
    first, *values, last = printed(example("class Listener"), bootstrap).splitlines()
    assert first.startswith("assigned: [TopicPartition")
    assert said_values("\n".join(values)) == [1, 1, 1]
    assert last.startswith("revoked: [TopicPartition")


def test_the_service_ends_at_sigterm(bootstrap: str) -> None:
    with started(example("signal.SIGTERM"), bootstrap) as service:
        assert service.stdout is not None
        for _ in VALUES:
            service.stdout.readline()
        service.send_signal(signal.SIGTERM)
        assert service.wait(DEADLINE_S) == 0


def test_the_poison_record_is_skipped(bootstrap: str) -> None:
    lines = printed(example("json.loads"), bootstrap).splitlines()
    assert lines[0] == "{'delay': 1}"
    assert lines[1].startswith("skipped: TopicPartition")
    assert lines[2] == "{'delay': 3}"


def test_the_administrator_sees_settings_and_groups(bootstrap: str) -> None:
    """The group has another name than the example's: each runs once with what it begins with."""
    printed(example('group_id="archive"').replace('"archive"', '"administered"'), bootstrap)
    setting, *groups = printed(example("AdminClient"), bootstrap).splitlines()
    assert setting == "3600000"
    assert any(line.startswith("administered {TopicPartition") for line in groups)


def test_a_consumer_is_measured(bootstrap: str) -> None:
    code = example("serve_metrics")
    assert "port=9464" in code
    said = printed(code.replace("port=9464", "port=0"), bootstrap)
    assert re.fullmatch(r"3 records; metrics at port \d+\n", said)


def test_the_producers_send(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        for code in (PRODUCERS[0], example("import Producer")):
            assert "topic='flights'" in printed(code, broker.bootstrap_servers)
        assert printed(PRODUCERS[1], broker.bootstrap_servers).startswith("2 rows in ")


def test_every_example_is_run() -> None:
    assert len(CLIENTS) == 10
    assert len(PRODUCERS) == 3


def test_each_record_is_committed_with_its_position(real_kafka: RealKafka) -> None:
    """Topics and group have names of their own: other tests use this Kafka too."""
    servers = real_kafka.bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(3):
            producer.send("each-flight", b"%d" % number).result(DEADLINE_S)
    code = PRODUCERS[2].replace('"flights"', '"each-flight"').replace('"delays"', '"each-delay"')
    assert "consumer_timeout_ms=5_000" in code
    said = printed(code, servers) or printed(code.replace("=5_000", "=50_000"), servers)
    assert said.split("\n") == [*(f"committed up to offset {each}" for each in range(3)), ""]
    assert printed(code, servers) == ""  # the group is behind them
