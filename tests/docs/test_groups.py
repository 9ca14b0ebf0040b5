"""The examples of docs/groups.md do what the page says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kohort import Consumer, EmbeddedBroker
from kohort.types import TopicPartition
from tests.broker.processes import eventually
from tests.docs.test_readme import python_blocks

PAGE = Path(__file__).parents[2] / "docs" / "groups.md"
BLOCKS = python_blocks(PAGE.read_text())
ALL = {TopicPartition("flights", number) for number in range(4)}


def names_of(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(code, PAGE.name, "exec"), names)
    return names


def gets_everything(consumer: Consumer) -> None:
    def assigned() -> bool:
        consumer.poll(timeout_ms=50)
        return consumer.assignment() == ALL

    with consumer:
        eventually(assigned, "the only member has all partitions")


def with_consumer() -> list[str]:
    return [block for block in BLOCKS if "localhost:9092" in block]


@pytest.mark.parametrize("number", range(4))
def test_each_consumer_of_the_page_joins_its_group(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    code = with_consumer()[number]
    with EmbeddedBroker() as broker:
        broker.create_topic("flights", 4)
        names = names_of(code.replace("localhost:9092", broker.bootstrap_servers))
        gets_everything(names["consumer"])
    said = capsys.readouterr().out
    assert ("assigned:" in said) == ("Listener" in names)


def test_the_assignor_of_the_page_assigns() -> None:
    (code,) = [block for block in BLOCKS if "class FirstTakesAll" in block]
    with EmbeddedBroker() as broker:
        broker.create_topic("flights", 4)
        gets_everything(
            Consumer(
                "flights",
                bootstrap_servers=broker.bootstrap_servers,
                group_id="own",
                partition_assignment_strategy=[names_of(code)["FirstTakesAll"]()],
            )
        )


def test_every_example_is_run() -> None:
    assert len(BLOCKS) == 5
    assert len(with_consumer()) == 4


def output_of(example: str) -> str:
    command = [sys.executable, str(PAGE.parents[1] / "examples" / example)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_cooperative_assignor_shares_out_while_a_member_reads_on() -> None:
    assert output_of("cooperative_assignor.py") == "alone: 6 partitions\ntogether: 3 and 3\n"


def test_the_machines_run_in_memory() -> None:
    lines = output_of("group_in_memory.py").splitlines()
    assert lines[-2:] == ["north has [0, 1, 2]", "south has [3, 4, 5]"]
    assert "  6200 ms  north: revoked [3, 4, 5]" in lines
