"""The command as a person types it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import Consumer, Producer
from tests.cli.running import as_json, printed, ran, told


@pytest.mark.parametrize("command", [
    [], ["demo"], ["broker"], ["groups"], ["groups", "describe"], ["groups", "members"],
    ["groups", "state"], ["groups", "watch"], ["groups", "reset-offsets"], ["groups", "delete"],
    ["groups", "delete-offsets"], ["groups", "remove-members"], ["topics"], ["topics", "list"],
    ["topics", "describe"], ["topics", "create"], ["topics", "alter"], ["topics", "delete"],
    ["topics", "configs"], ["produce"], ["consume"], ["spark"],
    ["spark", "import-checkpoint"], ["spark", "export-checkpoint"], ["spark", "export-offsets"],
    ["region"], ["region", "start"],
])  # fmt: skip
def test_every_command_explains_itself(command: list[str]) -> None:
    assert "Usage" in printed(*command, "--help")


@pytest.mark.parametrize("module", ["kohort", "kohort.cli", "kohort.cli.main"])
def test_every_way_to_start_the_command_is_the_command(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "broker", "--port", "wrong"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "--port" in done.stderr


def test_commands_and_options_are_completed() -> None:
    """As the script that --show-completion prints asks for it."""
    script = Path(sys.executable).with_name("kohort")
    for words, expected in (
        ("kohort gro", ["groups"]),
        ("kohort groups re", ["reset-offsets", "remove-members"]),
        ("kohort groups reset-offsets --to-d", ["--to-datetime"]),
    ):
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = subprocess.run(
            [str(script)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "_KOHORT_COMPLETE": "complete_bash", **asked},
        )
        assert sorted(done.stdout.split()) == sorted(expected)


def test_the_installed_script_is_the_command() -> None:
    script = Path(sys.executable).with_name("kohort")
    done = subprocess.run(
        [str(script), "--help"], capture_output=True, text=True, timeout=60, check=False
    )
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
            listed = as_json("groups", "list", "-b", address)
            described = as_json("groups", "describe", "g", "-b", address)
            table = printed("groups", "describe", "g", "-b", address)
    assert [group["group"] for group in listed["groups"]] == ["g"]
    assert (described["type"], described["state"], described["epoch"]) == (
        "classic",
        "Stable",
        None,
    )
    assert described["members"][0]["assignment"] == {"t": [0, 1]}
    rows = [
        (row["current_offset"], row["lag"], row["client_id"]) for row in described["partitions"]
    ]
    assert rows == [(5, 0, "me"), (5, 0, "me")]
    assert "CURRENT-OFFSET  LOG-END-OFFSET  LAG" in table


def test_a_group_of_kip_848_is_shown_with_its_epochs_and_both_assignments() -> None:
    """A member that has not given up yet what another one is to have: the group reconciles."""
    with EmbeddedBroker(group_consumer_heartbeat_interval_ms=50) as broker:
        broker.create_topic("t", 2)
        address = broker.bootstrap_servers
        settings: dict[str, Any] = {
            "bootstrap_servers": address,
            "group_id": "g",
            "group_protocol": "consumer",
        }
        with (
            Consumer("t", client_id="north", **settings) as north,
            Consumer("t", client_id="south", **settings) as south,
        ):
            while len(north.assignment()) < 2:
                north.poll(20)
            describe = ("groups", "describe", "g", "-b", address)
            described = as_json(*describe)
            assert (described["type"], described["state"]) == ("consumer", "Stable")
            assert described["assignor"] == "uniform"
            while len(described["members"]) < 2 or described["state"] != "Reconciling":
                south.poll(20)
                described = as_json(*describe)
            table = printed("groups", "members", "g", "-b", address, "--verbose")
            offsets = printed(*describe)
            listed = printed("groups", "list", "-b", address)
    has = {member["client_id"]: member for member in described["members"]}
    assert has["north"]["assignment"] == {"t": [0, 1]}
    assert has["south"]["assignment"] == {}
    given = [has[name]["target_assignment"]["t"] for name in ("north", "south")]
    assert sorted(given) == [[0], [1]]
    assert has["north"]["epoch"] < described["target_assignment_epoch"] == described["epoch"]
    assert "TYPE consumer  STATE Reconciling  ASSIGNMENT-STRATEGY uniform  GROUP-EPOCH" in table
    assert "CURRENT-EPOCH  CURRENT-ASSIGNMENT  TARGET-EPOCH  TARGET-ASSIGNMENT" in table
    assert "north      " in table
    assert "t:0,1 " in table
    assert "CURRENT-OFFSET  LOG-END-OFFSET  LAG" in offsets
    assert [line.split() for line in listed.splitlines()] == [
        ["GROUP", "TYPE", "STATE", "PROTOCOL-TYPE"],
        ["g", "consumer", "Reconciling", "consumer"],
    ]


def test_a_broker_that_is_not_there_is_one_line_with_its_address() -> None:
    done = ran("groups", "list", "-b", "127.0.0.1:1")
    assert done.returncode == 1
    assert done.stdout == b""
    assert len(done.stderr.splitlines()) == 1
    assert b"127.0.0.1:1" in done.stderr


def test_an_argument_that_makes_no_sense_is_one_line() -> None:
    said = told("groups", "describe", "", "-b", "127.0.0.1:1", code=1)
    assert said == "kohort: group_ids[0] is empty\n"


def test_a_folder_that_is_not_the_demos_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    said = told("demo", "--quick", "--out", str(tmp_path), code=1)
    assert "not a folder of this demo" in said
    assert (tmp_path / "mine").exists()
