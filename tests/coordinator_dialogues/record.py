"""`make record`: run all dialogues against a live Kafka and write its answers into the data files.

Names on the command line are families; without any, all are recorded. A file changes only where
Kafka answers otherwise than it says, so that recording twice changes nothing.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from tests.coordinator_dialogues import script
from tests.coordinator_dialogues.brokers import on_kafka, on_ours
from tests.coordinator_dialogues.files import STEP, kafka_version, report, rewrite
from tests.coordinator_dialogues.runner import Outcome
from tests.coordinator_dialogues.script import Dialogue

_RECORDED = re.compile(r"(recorded|(given-)?\d+\.(answer|ours(-v[\d-]+)?|v[\d-]+)) = ")

Answers = dict[tuple[int, int], str]


def main(families: list[str]) -> int:
    """Record families of dialogues; returns 1 if one did not run to its end."""
    wanted = [path for path in script.files() if not families or path.stem in families]
    dialogues = [dialogue for path in wanted for dialogue in script.read(path)]
    with tempfile.TemporaryDirectory() as folder:
        outcomes = on_kafka(dialogues, Path(folder))
    our_outcomes = on_ours([dialogue for dialogue in dialogues if dialogue.differs])
    failed = [outcome for outcome in outcomes if outcome.failure]
    kafkas, ours = _by_dialogue(outcomes), _by_dialogue(our_outcomes)
    for outcome in failed:
        kafkas.pop(outcome.dialogue.name, None)

    def recorded(name: str, table: str) -> str | None:
        ran = kafkas.get(name)
        return _recorded(table, ran, _answers(ours.get(name, []))) if ran else None

    for path in wanted:
        rewrite(path, recorded)
    reasons = [(each.dialogue.name, f"v{each.version}: {each.failure}") for each in failed]
    return report("dialogues", len(dialogues), reasons)


def _by_dialogue(outcomes: list[Outcome]) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        found[outcome.dialogue.name].append(outcome)
    return found


def _answers(outcomes: list[Outcome]) -> Answers:
    return {
        (number, outcome.version): answer
        for outcome in outcomes
        for number, answer in outcome.answers.items()
        if outcome.came[number] > 0
    }


def _recorded(table: str, outcomes: list[Outcome], ours: Answers) -> str:
    """Put the answers into the text of a table, each below the line at which it came."""
    dialogue, answers = outcomes[0].dialogue, _answers(outcomes)
    lines: list[str] = []
    step: int | None = None
    came: dict[int, list[str]] = defaultdict(list)
    for number, at in sorted(outcomes[-1].came.items()):
        if at > 0:
            came[at] += _answer_lines(number, answers, ours, dialogue)
    kept = [line for line in table.rstrip("\n").split("\n") if not _RECORDED.match(line)]
    for line in kept:
        following = STEP.match(line)
        if (following or not line) and step is not None:
            lines += came.pop(step, [])
            step = None
        if following:
            step = int(following[1])
        lines.append(line)
    if step is not None:
        lines += came.pop(step, [])
    assert not came, (dialogue.name, came)
    lines.append(f'recorded = "{dialogue.digest(kafka_version(), answers)}"')
    return _recorded_at_top(lines) + "\n\n"


def _recorded_at_top(lines: list[str]) -> str:
    """A dotted key of the table's own must not follow others in the eye: say it before step 1."""
    *others, recorded = lines
    first = next(at for at, line in enumerate(others) if STEP.match(line))
    return "\n".join([*others[:first], recorded, *others[first:]]).rstrip()


def _answer_lines(number: int, answers: Answers, ours: Answers, dialogue: Dialogue) -> list[str]:
    lines = _spans(number, answers, dialogue.versions(), "")
    keys = [(number, version) for version in dialogue.versions()]
    if any(key in ours and ours[key] != answers.get(key) for key in keys):
        lines += _spans(number, ours, dialogue.versions(), "ours")
    return lines


def _spans(number: int, answers: Answers, versions: tuple[int, ...], prefix: str) -> list[str]:
    """One line for each run of versions with the same answer."""
    runs: list[tuple[list[int], str]] = []
    for version in versions:
        answer = answers[number, version]
        if runs and runs[-1][1] == answer:
            runs[-1][0].append(version)
        else:
            runs.append(([version], answer))
    step = str(number) if number > 0 else f"given{number}"
    if len(runs) == 1:
        return [f"{step}.{prefix or 'answer'} = {runs[0][1]}"]
    dash = f"{prefix}-" if prefix else ""
    return [f"{step}.{dash}{_span(run)} = {answer}" for run, answer in runs]


def _span(run: list[int]) -> str:
    return f"v{run[0]}" if len(run) == 1 else f"v{run[0]}-{run[-1]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
