"""`make record`: run member dialogues with Kafka's own consumer on a live Kafka and write it down.

Names on the command line are families; without any, all are recorded. A file changes only where
Kafka's consumers saw otherwise than it says, so that recording twice changes nothing.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from tests.coordinator_dialogues.files import STEP, kafka_version, report, rewrite
from tests.member_dialogues import script
from tests.member_dialogues.brokers import java_on_kafka, ours_on_kafka
from tests.member_dialogues.runner import Outcome
from tests.member_dialogues.script import NOTHING

_RECORDED = re.compile(r"(recorded|\d+\.(answer|ours)) = ")


def main(families: list[str]) -> int:
    """Record families of dialogues; returns 1 if one did not run to its end."""
    wanted = [path for path in script.files() if not families or path.stem in families]
    dialogues = [dialogue for path in wanted for dialogue in script.read(path)]
    with tempfile.TemporaryDirectory() as folder:
        kafkas = java_on_kafka(dialogues, Path(folder, "java"))
        differing = [dialogue for dialogue in dialogues if dialogue.differs]
        ours = ours_on_kafka(differing, Path(folder, "ours")) if differing else []
    failed = [outcome for outcome in (*kafkas, *ours) if outcome.failure]
    by_name = {outcome.dialogue.name: outcome for outcome in kafkas}
    our_by_name = {outcome.dialogue.name: outcome for outcome in ours}
    for outcome in failed:
        by_name.pop(outcome.dialogue.name, None)

    def recorded(name: str, table: str) -> str | None:
        seen = by_name.get(name)
        return _recorded(table, seen, our_by_name.get(name)) if seen else None

    for path in wanted:
        rewrite(path, recorded)
    reasons = [(each.dialogue.name, each.failure) for each in failed]
    return report("member dialogues", len(dialogues), reasons)


def _recorded(table: str, kafkas: Outcome, ours: Outcome | None) -> str:
    """Put the answers into the text of a table, each below its step."""
    digest = kafkas.dialogue.digest(kafka_version(), kafkas.answers)
    lines: list[str] = []
    for line in table.rstrip("\n").split("\n"):
        if _RECORDED.match(line):
            continue
        step = STEP.match(line)
        if step and int(step[1]) == kafkas.dialogue.steps[0].number:
            lines.append(f'recorded = "{digest}"')
        lines.append(line)
        if step:
            lines += _answer_lines(int(step[1]), kafkas, ours)
    return "\n".join(lines) + "\n\n"


def _answer_lines(number: int, kafkas: Outcome, ours: Outcome | None) -> list[str]:
    answer = kafkas.answers.get(number, NOTHING)
    lines = [f"{number}.answer = {answer}"] if answer != NOTHING else []
    our = ours.answers.get(number, NOTHING) if ours else answer
    return lines + ([f"{number}.ours = {our}"] if our != answer else [])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
