"""Our broker and a live Kafka answer every dialogue as `make record` wrote it down."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.dialogues import script
from tests.dialogues.brokers import on_kafka, on_ours
from tests.dialogues.record import kafka_version
from tests.dialogues.runner import Outcome, differences

AT_LEAST = 100
EVERY = script.read_all()


@pytest.fixture
def real_kafka() -> None:
    """Marks what needs a live Kafka, so that it can be left out where there is none.

    The one that other tests share has other settings, and theirs are the groups in it.
    """


def test_kafka_answers_as_recorded(real_kafka: None, tmp_path: Path) -> None:
    """Each dialogue names the rules that it proves, in its file."""
    assert kafka_version() == EVERY[0].recorded.partition(" ")[0]
    check(on_kafka(EVERY, tmp_path), of_kafka=True)


def test_our_broker_answers_as_kafka() -> None:
    """The same dialogues; `N.ours` in a file is where we differ on purpose, `differs` says why."""
    check(on_ours(EVERY), of_kafka=False)


def check(outcomes: list[Outcome], *, of_kafka: bool) -> None:
    found = [line for each in outcomes for line in differences(each, of_kafka=of_kafka)]
    if found:
        raise AssertionError("\n".join(found))


def test_there_are_many() -> None:
    assert len(EVERY) >= AT_LEAST


def test_names_are_unique() -> None:
    names = [dialogue.name for dialogue in EVERY]
    assert [name for name in set(names) if names.count(name) > 1] == []


def test_every_dialogue_names_its_rules() -> None:
    unnamed = [
        dialogue.name
        for dialogue in EVERY
        if not dialogue.about.endswith(".")
        or not dialogue.rules
        or not all(re.fullmatch(r"[ABCKL]\d{1,2}", rule) for rule in dialogue.rules)
    ]
    assert unnamed == []


def test_nothing_was_edited_without_being_recorded() -> None:
    """`make record` is the only way to change requests or answers."""
    stale = [
        dialogue.name
        for dialogue in EVERY
        if dialogue.recorded
        != dialogue.digest(dialogue.recorded.partition(" ")[0], dialogue.answers)
    ]
    assert stale == []


def test_an_edited_answer_or_request_is_found() -> None:
    dialogue = next(dialogue for dialogue in EVERY if dialogue.name == "heartbeat-of-a-member")
    version, _, _ = dialogue.recorded.partition(" ")
    answers = dict(dialogue.answers)
    assert dialogue.digest(version, answers) == dialogue.recorded
    answers[1, -1] = '{ error_code = "FENCED_INSTANCE_ID" }'
    assert dialogue.digest(version, answers) != dialogue.recorded
    assert dialogue.digest("4.2.0", dialogue.answers) != dialogue.recorded


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


def test_who_differs_says_why() -> None:
    """A deliberate difference names its decision, and there is one."""
    root = Path(__file__).resolve().parents[2]
    for dialogue in EVERY:
        assert bool(dialogue.differs) == bool(dialogue.ours), dialogue.name
        if dialogue.differs:
            assert list(root.glob(f"{dialogue.differs}*.md")), dialogue.name
