"""The data files: what applications do with a consumer, and what Kafka's own consumer did then.

A file of `data/` holds one family of dialogues, a table for each:

    [everything-is-given-up]
    about = "What this shows, in one sentence."
    rules = ["L1", "L3"]             # ids of docs/internals/rules.md that it proves
    topics = { topic = 4 }           # made first: `topic` has four partitions
    assignors = "range"              # or protocol = "consumer"
    settings = { "max.poll.interval.ms" = 1500 }  # of every consumer, by Kafka's names
    differs = "docs/decisions/0000"  # ours does otherwise on purpose; `N.ours` says what
    1.start = "a"
    2.poll = { a = 4 }
    2.answer = { a = ["assigned topic-0 topic-1 topic-2 topic-3", "has ..."] }

Steps of one application, which has the name of its consumer (a client id):

    start = "a"                      # or { member = "a", topics = [...], settings, listener }
    subscribe = { member = "a", topics = ["topic"] }
    listener = { member = "a", revoked = "raise" }   # or "hold" until released, or "commit"
    release = "a"                    # of a call that is not made in a poll
    commit = { member = "a", offsets = { topic-0 = 5 } }      # its positions without offsets
    committed = { member = "a", partitions = ["topic-0"] }
    enforce_rebalance = { member = "a", reason = "..." }
    metrics = { member = "a", names = ["join-.*"], counts = ["join-total"],
                at_least = { rebalance-latency-max = 1000 } }
    unsubscribe = "a"
    close = "a"                      # or { member = "a", operation = "REMAIN_IN_GROUP" }

`poll = { a = 2, b = "along" }` has several poll at once, each in a thread of its own and nobody
else, until all is as it says: a number of partitions that were assigned in this step, and one
generation for all; something the application was told or met (`revoked`, `assigned`, `lost`,
`error`) or `read 3` records in all, after which it polls no more; `hold` in the listener, from
which `release = "a"` in a later poll lets it go. Members that poll `aside` are not looked at. With
`group = "PreparingRebalance"`, or `group = 2` members, the coordinator has to say so, too.

Steps of nobody: `await = { members = 2, state = "Stable" }` for what the coordinator says of the
group, `describe = {}` for what it says now, `joined = {}` for what members said when they joined,
`expel = "a"` by an administrator, `grow = { topic = 6 }`, `produce = { topic-0 = 3 }`, and
`elapse_ms` where nothing shows that time has passed.

`N.answer` and `recorded` are written by `make record`, which runs the dialogues with Kafka's own
KafkaConsumer on a live Kafka; see `tests/coordinator_dialogues/script.py` for `recorded`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tests.coordinator_dialogues import files as data_files
from tests.coordinator_dialogues.toml import Value, render
from tests.member_dialogues.settings import CLIENTS, KAFKA

DATA = Path(__file__).parent / "data"
NOTHING = "{}"

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of a dialogue: what is done, and its details."""

    number: int
    kind: str
    details: Mapping[str, object]

    @property
    def member(self) -> str:
        """Whose step it is."""
        return str(self.details["member"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogue:
    """One dialogue as its file has it.

    Attributes:
        settings: Of every consumer, by Kafka's names.
        answers: By number of the step: what the applications saw, rendered.
        ours: The same for what ours see otherwise.
        recorded: Version of Kafka and digest.
    """

    name: str
    family: str
    about: str
    rules: tuple[str, ...]
    topics: Mapping[str, int]
    settings: Mapping[str, object]
    differs: str | None
    steps: tuple[Step, ...]
    answers: Mapping[int, str]
    ours: Mapping[int, str]
    recorded: str

    def expected(self, number: int, *, of_kafka: bool) -> str:
        """What is seen in a step."""
        answer = self.answers.get(number, NOTHING)
        return answer if of_kafka else self.ours.get(number, answer)

    def digest(self, kafka_version: str, answers: Mapping[int, str]) -> str:
        """What `recorded` has to say for these answers."""
        said = [
            [repr(step) for step in self.steps],
            sorted(self.topics.items()),
            sorted(self.settings.items()),
            sorted(answers.items()),
            sorted(CLIENTS.items()),
            sorted(KAFKA.items()),
        ]
        return data_files.digest(kafka_version, said)


def files() -> list[Path]:
    """The files of all families."""
    return sorted(DATA.glob("*.toml"))


def read(path: Path) -> list[Dialogue]:
    """The dialogues of one file."""
    tables = tomllib.loads(path.read_text())
    return [_dialogue(name, path.stem, table) for name, table in tables.items()]


def read_all() -> list[Dialogue]:
    """Every dialogue there is."""
    return [dialogue for path in files() for dialogue in read(path)]


def _dialogue(name: str, family: str, table: dict[str, object]) -> Dialogue:
    lines = {int(key): table.pop(key) for key in list(table) if _NUMBER.fullmatch(key)}
    answers: dict[int, str] = {}
    ours: dict[int, str] = {}
    steps = []
    for number, entries in sorted(lines.items()):
        line = cast("dict[str, object]", entries)
        for key, found in (("answer", answers), ("ours", ours)):
            if key in line:
                found[number] = render(cast("Value", line.pop(key)))
        steps.append(_step(number, line))
    made = Dialogue(
        name=name,
        family=family,
        about=str(table.pop("about")),
        rules=tuple(cast("list[str]", table.pop("rules"))),
        topics=cast("dict[str, int]", table.pop("topics")),
        settings=_settings(table),
        differs=cast("str | None", table.pop("differs", None)),
        steps=tuple(steps),
        answers=answers,
        ours=ours,
        recorded=str(table.pop("recorded", "")),
    )
    data_files.refuse_others(name, table)
    return made


def _settings(table: dict[str, object]) -> dict[str, object]:
    settings = cast("dict[str, object]", table.pop("settings", {}))
    protocol = str(table.pop("protocol", "classic"))
    settings["group.protocol"] = protocol
    if protocol == "classic":
        settings.setdefault("heartbeat.interval.ms", 200)
    assignors = table.pop("assignors", None)
    if assignors is not None:
        settings["partition.assignment.strategy"] = assignors
    return settings


def _step(number: int, line: dict[str, object]) -> Step:
    kind, value = data_files.only_entry(number, line)
    if isinstance(value, str):
        value = {"member": value}
    elif isinstance(value, int):
        value = {"ms": value}
    return Step(number=number, kind=kind, details=cast("dict[str, object]", value))
