"""Single dialogues on our broker: those that KOHORT_DIALOGUES names (tools/mutations.py)."""

from __future__ import annotations

import os

import pytest

from tests.dialogues import script
from tests.dialogues.brokers import on_ours
from tests.dialogues.runner import differences

NAMES = os.environ.get("KOHORT_DIALOGUES", "").split()


@pytest.mark.parametrize("name", NAMES)
def test_our_broker_answers_as_kafka(name: str) -> None:
    (outcome,) = on_ours(each for each in script.read_all() if each.name == name)
    assert differences(outcome, of_kafka=False) == []
