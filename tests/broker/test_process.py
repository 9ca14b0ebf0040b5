"""The broker as a process, and its settings."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kohort.broker import BrokerConfig, EmbeddedBroker
from kohort.broker.process import settings
from kohort.errors import ConfigError, KohortError, LocalProtocolError
from tests.broker.processes import DEADLINE_S, BrokerProcess, broker_command


def failing(data: Path, port: int, *options: str) -> list[str]:
    """Return the output of a broker that fails to start; its exit code must be 1."""
    done = subprocess.run(
        broker_command(data, port, *options),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_it_ends_in_order_at_sigterm(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        assert broker.stop() == 0
        broker.start()


def test_a_second_broker_on_a_directory_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as first:
        (line,) = failing(tmp_path, 0)
        assert f"is in use by another broker (process {first.process.pid})" in line
        with pytest.raises(KohortError, match="in use by another broker"):
            EmbeddedBroker(tmp_path).start()


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "first") as first:
        (line,) = failing(tmp_path / "second", first.port)
        assert f"cannot listen on 127.0.0.1:{first.port}" in line


def test_a_directory_that_is_none_of_a_brokers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text('{"topics": 7}')
    (line,) = failing(tmp_path, 0)
    assert "topics.json is not a kohort broker's" in line


def test_an_address_that_others_reach_must_be_permitted(tmp_path: Path) -> None:
    (line,) = failing(tmp_path, 0, "--host", "0.0.0.0")
    assert "--allow-remote" in line
    with pytest.raises(ConfigError, match="can be reached from other machines"):
        EmbeddedBroker(host="192.168.1.1")
    assert BrokerConfig(host="0.0.0.0", allow_remote=True).host == "0.0.0.0"


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("num_partition", "num_partitions"),
        ("hostname", "host"),
        ("retention_ms", "log_retention_ms"),
        ("group_initial_rebalance_delay", "group_initial_rebalance_delay_ms"),
    ],
)
def test_an_unknown_setting_names_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown setting '{wrong}'; did you mean '{near}'\?"):
        BrokerConfig.of({wrong: 1})


@pytest.mark.parametrize("wrong", ["foo", "x", "min_insync_replicas"])
def test_an_unknown_setting_that_is_like_none_names_none(wrong: str) -> None:
    with pytest.raises(ConfigError, match=rf"^unknown setting '{wrong}'$"):
        BrokerConfig.of({wrong: 1})


def test_any_setting_may_be_given_by_kafkas_name() -> None:
    given = ["group.max.size=3", "auto_create_topics=false", "host = ::1", "broker.rack=r1"]
    found = settings(given)
    assert found == {
        "group_max_size": 3,
        "auto_create_topics": False,
        "host": "::1",
        "broker_rack": "r1",
    }
    assert BrokerConfig.of(found).group_max_size == 3


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("group.max.size", "not of the form NAME=VALUE"),
        ("group.max.size=many", "not an integer"),
        ("auto.create.topics=1", "neither true nor false"),
        ("group.maximum.size=1", "did you mean"),
    ],
)
def test_a_wrong_setting_is_one_line(wrong: str, said: str, tmp_path: Path) -> None:
    (line,) = failing(tmp_path, 0, "--set", wrong)
    assert said in line


@pytest.mark.parametrize("wrong", [{"port": -1}, {"port": 65536}, {"num_partitions": 0}])
def test_settings_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        BrokerConfig.of(wrong)


def test_a_broker_is_used_while_it_runs() -> None:
    broker = EmbeddedBroker()
    with pytest.raises(LocalProtocolError, match="not running"):
        broker.create_topic("t")
    with broker:
        broker.create_topic("t")
        folder = broker._service._temporary
        assert folder is not None
        assert folder.is_dir()
    assert not folder.exists()
    with pytest.raises(LocalProtocolError, match="not running"):
        assert broker.bootstrap_servers
