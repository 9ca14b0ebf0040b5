"""Our broker and a live Kafka answer every dialogue as `make record` wrote it down."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.coordinator_dialogues import script
from tests.coordinator_dialogues.brokers import on_kafka, on_ours
from tests.coordinator_dialogues.files import kafka_version
from tests.coordinator_dialogues.runner import Outcome, differences
from tests.coordinator_dialogues.script import Dialogue

EVERY = script.read_all()

# Delays and sessions of a second elapse for real, and a busy machine may let them elapse between
# two steps. What differs is played again, without the others; a true difference is always there.
TIMES = 3


@pytest.fixture
def real_kafka() -> None:
    """Marks what needs a live Kafka, so that it can be left out where there is none.

    The one that other tests share has other settings, and theirs are the groups in it.
    """


def test_kafka_answers_as_recorded(real_kafka: None, tmp_path: Path) -> None:
    """Each dialogue names the rules that it proves, in its file."""
    assert kafka_version() == EVERY[0].recorded.partition(" ")[0]
    nodes = (tmp_path / str(time) for time in range(TIMES))
    check(lambda chosen: on_kafka(chosen, next(nodes)), of_kafka=True)


def test_our_broker_answers_as_kafka() -> None:
    """The same dialogues; `N.ours` in a file is where we differ on purpose, `differs` says why."""
    check(on_ours, of_kafka=False)


def check(play: Callable[[Iterable[Dialogue]], list[Outcome]], *, of_kafka: bool) -> None:
    chosen, found = EVERY, [""]
    for _ in range(TIMES):
        outcomes = [each for each in play(chosen) if differences(each, of_kafka=of_kafka)]
        found = [line for each in outcomes for line in differences(each, of_kafka=of_kafka)]
        if not found:
            return
        names = {each.dialogue.name for each in outcomes}
        chosen = [each for each in EVERY if each.name in names]
    raise AssertionError("\n".join(found))


def test_a_difference_is_found() -> None:
    """A broker that answers otherwise, or not at all, fails the comparison."""
    dialogue = next(dialogue for dialogue in EVERY if dialogue.name == "heartbeat-of-a-member")
    right = Outcome(
        dialogue, -1, answers={n: answer for (n, _), answer in dialogue.answers.items()}
    )
    assert differences(right, of_kafka=False) == []
    wrong = Outcome(dialogue, -1, answers={**right.answers, 1: "{}"})
    assert "answered {}" in differences(wrong, of_kafka=False)[0]
    silent = Outcome(dialogue, -1, answers={}, failure="")
    assert "no answer" in differences(silent, of_kafka=False)[0]
