"""Delivery callbacks that fork: the child must not continue in its parent's loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from tests.client.programs.run import run


@pytest.mark.parametrize("register", ["add_callback", "add_done_callback"])
@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ("exit", 7, ""),
        ("text", 1, "goodbye"),
        ("raise", 1, "ValueError: in the child"),
        ("return", 0, "the child returned from it"),
    ],
)
def test_a_child_forked_in_a_callback_ends_and_its_parent_loses_nothing(
    tmp_path: Path, how: str, status: int, said: str, register: str
) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", 1)
        done = run("fork_in_callback", broker.bootstrap_servers, how, register)
    assert done.stdout == f"child {status}, delivered True\n", done.stderr
    assert done.returncode == 0, done.stderr
    assert said in done.stderr
