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

from tests.dialogues import script
from tests.dialogues.brokers import on_kafka, on_ours
from tests.dialogues.runner import Outcome
from tests.dialogues.script import Dialogue
from tests.real_kafka.broker import KAFKA_LIBS

_HEADER = re.compile(r"\[([\w-]+)\]")
_STEP = re.compile(r"(\d+)\.")
_RECORDED = re.compile(r"(recorded|(given-)?\d+\.(answer|ours(-v[\d-]+)?|v[\d-]+)) = ")

Answers = dict[tuple[int, int], str]


def kafka_version() -> str:
    """The version of the jars that are run."""
    (jar,) = KAFKA_LIBS.glob("kafka-clients-*.jar")
    return jar.stem.removeprefix("kafka-clients-")


def main(families: list[str]) -> int:
    """Record families of dialogues; returns 1 if one did not run to its end."""
    wanted = [path for path in script.files() if not families or path.stem in families]
    dialogues = [dialogue for path in wanted for dialogue in script.read(path)]
    with tempfile.TemporaryDirectory() as folder:
        outcomes = on_kafka(dialogues, Path(folder))
    our_outcomes = on_ours([dialogue for dialogue in dialogues if dialogue.differs])
    failed = [outcome for outcome in outcomes if outcome.failure]
    for outcome in failed:
        sys.stdout.write(f"{outcome.dialogue.name} v{outcome.version}: {outcome.failure}\n")
    kafkas, ours = _by_dialogue(outcomes), _by_dialogue(our_outcomes)
    broken = {outcome.dialogue.name for outcome in failed}
    for path in wanted:
        _write(path, kafkas, ours, broken)
    sys.stdout.write(f"{len(dialogues)} dialogues recorded, {len(broken)} failed\n")
    return 1 if failed else 0


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


def _write(
    path: Path,
    kafkas: dict[str, list[Outcome]],
    ours: dict[str, list[Outcome]],
    broken: set[str],
) -> None:
    """Put the answers into the text of a file, each below the line at which it came."""
    dialogues = {dialogue.name: dialogue for dialogue in script.read(path)}
    parts = re.split(r"(?m)^(?=\[)", path.read_text())
    written = [parts[0]]
    for part in parts[1:]:
        name = _HEADER.match(part)
        assert name is not None, part
        if name[1] in broken:
            written.append(part)
        else:
            answered, our = kafkas[name[1]], _answers(ours.get(name[1], []))
            written.append(_recorded(part, dialogues[name[1]], answered, our))
    path.write_text("".join(written))


def _recorded(part: str, dialogue: Dialogue, outcomes: list[Outcome], ours: Answers) -> str:
    answers = _answers(outcomes)
    lines: list[str] = []
    step: int | None = None
    came: dict[int, list[str]] = defaultdict(list)
    for number, at in sorted(outcomes[-1].came.items()):
        if at > 0:
            came[at] += _answer_lines(number, answers, ours, dialogue)
    kept = [line for line in part.rstrip("\n").split("\n") if not _RECORDED.match(line)]
    for line in kept:
        following = _STEP.match(line)
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
    first = next(at for at, line in enumerate(others) if _STEP.match(line))
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
