"""The data files: what each dialogue says, and what Kafka answered.

A file of `data/` holds one family of dialogues, a table for each:

    [a-member-is-unknown]
    about = "What this shows, in one sentence."
    rules = ["C18"]                  # ids of docs/internals/rules.md that it proves
    given = "stable"                 # a dialogue of situations.toml that runs first
    topics = { topic = 2 }           # made first: `${topic}` has two partitions
    sweep = "Heartbeat"              # run once in each version of this API
    differs = "docs/decisions/0000"  # we answer otherwise on purpose; `N.ours` says what
    1.Heartbeat = { from = "b", member_id = "nobody" }
    1.answer = { error_code = "UNKNOWN_MEMBER_ID" }

Steps are numbered lines: a request by its API (fields not named are those of `defaults.toml`);
`N.wait = [1, 2]` for answers to parked requests (`[-2]` is step 2 of the situation, and its answer
is `given-2.answer`); `N.elapse_ms = 500` where nothing on the wire shows that time has passed;
`N.close = "a"` for a client that hangs up; `N.log = {}` shows what was written of the dialogue's
group to `__consumer_offsets` since the last such step; `N.restart = {}` stops the broker when all
dialogues of its kind are there, and starts it again, after it has put the records of
`restart = { log = [...] }` at the end of the log, as `N.log` shows them: what another broker or
compaction would have left there. Besides fields a request says `from` (the client),
`version`, `parked = true` (its answer comes later), and `until = "regex"`: it is sent again and
again until its answer matches.

`N.answer` (`N.v2-4` for some versions of a sweep) and `recorded` are written by `make record` from
a live Kafka. `recorded` names the version of Kafka and a digest of requests and answers: what was
edited without being recorded again is found without a Kafka.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

from kohort.wire import apis
from kohort.wire.codec.schema import Message
from tests.coordinator_dialogues import files as data_files
from tests.coordinator_dialogues.settings import Kind, kafka_settings, kind_of
from tests.coordinator_dialogues.toml import Value, render

DATA = Path(__file__).parent / "data"
DEFAULTS = DATA / "defaults.toml"
SITUATIONS = DATA / "situations.toml"

# Steps that look like requests and are none.
LOG, RESTART = "log", "restart"
_CONTROL = ("from", "version", "parked", "until")
_NUMBER = re.compile(r"(\d+|given-\d+)")
_SWEPT = re.compile(r"v(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of a dialogue; a request if it has an API that is not `LOG` or `RESTART`."""

    number: int
    api: str | None = None
    client: str = "a"
    version: int | None = None
    fields: Mapping[str, object]
    parked: bool = False
    until: str | None = None
    wait: tuple[int, ...] = ()
    elapse_ms: int = 0
    close: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogue:
    """One dialogue as its file has it.

    Attributes:
        answers: By number of the step and version of the sweep (-1 without): the rendered answer.
        ours: The same for what we answer otherwise.
        recorded: Version of Kafka and digest.
    """

    name: str
    family: str
    about: str
    rules: tuple[str, ...]
    given: str | None
    topics: Mapping[str, int]
    sweep: str | None
    differs: str | None
    steps: tuple[Step, ...]
    answers: Mapping[tuple[int, int], str]
    ours: Mapping[tuple[int, int], str]
    recorded: str

    @property
    def kind(self) -> Kind:
        """The kind of broker that it runs on."""
        return kind_of(self.family)

    @property
    def waits(self) -> bool:
        """Whether it lets time elapse."""
        return any(step.until or step.elapse_ms for step in self.steps)

    def versions(self) -> tuple[int, ...]:
        """The versions of the swept API; -1 alone where nothing is swept."""
        if self.sweep is None:
            return (-1,)
        request, _ = classes(self.sweep)
        return tuple(range(request.min_version, request.max_version + 1))

    def expected(self, number: int, version: int, *, of_kafka: bool) -> str | None:
        """The answer to a step in one version of the sweep."""
        key = number, version
        return self.answers.get(key) if of_kafka else self.ours.get(key, self.answers.get(key))

    def digest(self, kafka_version: str, answers: Mapping[tuple[int, int], str]) -> str:
        """What `recorded` has to say for these answers."""
        situation = situations().get(self.given or "")
        said = [
            [repr(step) for step in self.steps],
            [repr(step) for step in situation.steps] if situation else [],
            sorted(self.topics.items()),
            self.sweep,
            sorted((*key, answer) for key, answer in answers.items()),
            sorted(kafka_settings(self.kind).items()),
            DEFAULTS.read_text(),
        ]
        return data_files.digest(kafka_version, said)


@cache
def classes(api: str) -> tuple[type[Message], type[Message]]:
    """The request and the response of an API."""
    return {pair[0].__name__.removesuffix("Request"): pair for pair in apis.pairs()}[api]


@cache
def defaults() -> dict[str, dict[str, object]]:
    """The fields of a request that a dialogue does not name."""
    return tomllib.loads(DEFAULTS.read_text())


@cache
def situations() -> dict[str, Dialogue]:
    """What dialogues may start from."""
    return {dialogue.name: dialogue for dialogue in read(SITUATIONS)}


def files() -> list[Path]:
    """The files of all families, situations first."""
    others = sorted(set(DATA.glob("*.toml")) - {DEFAULTS, SITUATIONS})
    return [SITUATIONS, *others]


def read(path: Path) -> list[Dialogue]:
    """The dialogues of one file."""
    tables = tomllib.loads(path.read_text())
    return [_dialogue(name, path.stem, table) for name, table in tables.items()]


def read_all() -> list[Dialogue]:
    """Every dialogue there is."""
    return [dialogue for path in files() for dialogue in read(path)]


def _dialogue(name: str, family: str, table: dict[str, object]) -> Dialogue:
    lines = {
        -int(found[1][6:]) if found[1].startswith("given-") else int(found[1]): table.pop(key)
        for key in list(table)
        if (found := _NUMBER.fullmatch(key))
    }
    sweep = cast("str | None", table.pop("sweep", None))
    answers: dict[tuple[int, int], str] = {}
    ours: dict[tuple[int, int], str] = {}
    steps = []
    for number, entries in sorted(lines.items()):
        line = cast("dict[str, object]", entries)
        for key in list(line):
            if key == "answer" or _SWEPT.fullmatch(key):
                _put(answers, number, key, line.pop(key), sweep)
            elif key.startswith("ours"):
                _put(ours, number, key.removeprefix("ours-"), line.pop(key), sweep)
        if number > 0:
            steps.append(_step(number, line))
    made = Dialogue(
        name=name,
        family=family,
        about=str(table.pop("about")),
        rules=tuple(cast("list[str]", table.pop("rules"))),
        given=cast("str | None", table.pop("given", None)),
        topics=cast("dict[str, int]", table.pop("topics", {})),
        sweep=sweep,
        differs=cast("str | None", table.pop("differs", None)),
        steps=tuple(steps),
        answers=answers,
        ours=ours,
        recorded=str(table.pop("recorded", "")),
    )
    data_files.refuse_others(name, table)
    return made


def _put(
    answers: dict[tuple[int, int], str], number: int, key: str, value: object, sweep: str | None
) -> None:
    text = render(cast("Value", value))
    span = _SWEPT.fullmatch(key)
    if span:
        for version in range(int(span[1]), int(span[2] or span[1]) + 1):
            answers[number, version] = text
        return
    versions = [-1]
    if sweep:
        request, _ = classes(sweep)
        versions = list(range(request.min_version, request.max_version + 1))
    answers |= {(number, version): text for version in versions}


def _step(number: int, line: dict[str, object]) -> Step:
    key, value = data_files.only_entry(number, line)
    if key == "wait":
        return Step(number=number, wait=tuple(cast("list[int]", value)), fields={})
    if key == "elapse_ms":
        return Step(number=number, elapse_ms=cast("int", value), fields={})
    if key == "close":
        return Step(number=number, close=cast("str", value), fields={})
    said = cast("dict[str, object]", value)
    given = {**defaults().get(key, {}), **said}
    return Step(
        number=number,
        api=key,
        client=cast("str", given.get("from", "a")),
        version=cast("int | None", given.get("version")),
        fields={name: each for name, each in given.items() if name not in _CONTROL},
        parked=bool(given.get("parked", False)),
        until=cast("str | None", given.get("until")),
    )
