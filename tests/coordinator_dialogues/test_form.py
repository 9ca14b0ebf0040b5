"""The files of both kinds of dialogues: requests to a broker, and applications with a consumer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.coordinator_dialogues import script as requests
from tests.member_dialogues import script as members

Dialogue: TypeAlias = "requests.Dialogue | members.Dialogue"
Dialogues: TypeAlias = "list[requests.Dialogue] | list[members.Dialogue]"

ROOT = Path(__file__).resolve().parents[2]
REQUESTS = requests.read_all()
MEMBERS = members.read_all()

both = pytest.mark.parametrize("every", [REQUESTS, MEMBERS], ids=["requests", "members"])


@pytest.mark.parametrize(("every", "at_least"), [(REQUESTS, 380), (MEMBERS, 50)])
def test_there_are_many(every: Dialogues, at_least: int) -> None:
    assert len(every) >= at_least


@both
def test_names_are_unique(every: Dialogues) -> None:
    names = [dialogue.name for dialogue in every]
    assert [name for name in set(names) if names.count(name) > 1] == []


@pytest.mark.parametrize(("every", "families"), [(REQUESTS, "ABCKL"), (MEMBERS, "L")])
def test_every_dialogue_names_its_rules(every: Dialogues, families: str) -> None:
    rule = re.compile(rf"[{families}]\d{{1,2}}")
    unnamed = [
        dialogue.name
        for dialogue in every
        if not dialogue.about.endswith(".")
        or not dialogue.rules
        or not all(rule.fullmatch(each) for each in dialogue.rules)
    ]
    assert unnamed == []


def test_steps_of_members_are_numbered_in_a_row() -> None:
    for dialogue in MEMBERS:
        numbers = [step.number for step in dialogue.steps]
        assert numbers == list(range(1, len(numbers) + 1)), dialogue.name


@both
def test_who_differs_says_why(every: Dialogues) -> None:
    """A deliberate difference names its decision, and there is one."""
    for dialogue in every:
        assert bool(dialogue.differs) == bool(dialogue.ours), dialogue.name
        if dialogue.differs:
            assert list(ROOT.glob(f"{dialogue.differs}*.md")), dialogue.name


def test_nothing_was_edited_without_being_recorded() -> None:
    """`make record` is the only way to change steps or answers."""
    every: list[Dialogue] = [*REQUESTS, *MEMBERS]
    said = {(each.name, each.recorded) for each in every}
    now = {(each.name, each.digest(version(each), each.answers)) for each in REQUESTS}
    now |= {(each.name, each.digest(version(each), each.answers)) for each in MEMBERS}
    assert said == now


def version(dialogue: Dialogue) -> str:
    return dialogue.recorded.partition(" ")[0]


def test_an_edited_answer_or_step_is_found() -> None:
    request, member = REQUESTS[0], MEMBERS[0]
    answers = dict.fromkeys(request.answers, "{}")
    assert request.digest(version(request), answers) != request.recorded
    assert request.digest("4.2.0", request.answers) != request.recorded
    seen = dict.fromkeys(member.answers, "{}")
    assert member.digest(version(member), seen) != member.recorded
    assert member.digest("4.2.0", member.answers) != member.recorded
