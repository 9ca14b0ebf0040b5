"""The command as a person types it, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import Consumer, Producer

KOHORT = [sys.executable, "-c", "from kohort.cli.main import main; main()"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*KOHORT, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("command", [[], ["demo"], ["broker"], ["groups"], ["groups", "describe"]])
def test_every_command_explains_itself(command: list[str]) -> None:
    done = run(*command, "--help")
    assert done.returncode == 0
    assert "Usage" in done.stdout


def test_groups_are_listed_and_described_as_kafkas_tools_do() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 2)
        address = broker.bootstrap_servers
        with Producer(bootstrap_servers=address) as producer:
            for number in range(10):
                producer.send("t", value=b"v", partition=number % 2)
            producer.flush()
        with Consumer(
            bootstrap_servers=address, group_id="g", auto_offset_reset="earliest", client_id="me"
        ) as consumer:
            consumer.subscribe(["t"])
            read = 0
            while read < 10:
                read += sum(map(len, consumer.poll(timeout_ms=1000).values()))
            consumer.commit()
            listed = json.loads(run("groups", "list", "-b", address, "--json").stdout)
            described = json.loads(run("groups", "describe", "g", "-b", address, "--json").stdout)
            table = run("groups", "describe", "g", "-b", address).stdout
    assert [group["group"] for group in listed["groups"]] == ["g"]
    assert described["state"] == "Stable"
    rows = [
        (row["current_offset"], row["lag"], row["client_id"]) for row in described["partitions"]
    ]
    assert rows == [(5, 0, "me"), (5, 0, "me")]
    assert "CURRENT-OFFSET  LOG-END-OFFSET  LAG" in table


def test_a_broker_that_is_not_there_is_one_line_with_its_address() -> None:
    done = run("groups", "list", "-b", "127.0.0.1:1")
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "127.0.0.1:1" in done.stderr


def test_a_folder_that_is_not_the_demos_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    done = run("demo", "--quick", "--out", str(tmp_path))
    assert done.returncode == 1
    assert "not a folder of this demo" in done.stderr
    assert (tmp_path / "mine").exists()
