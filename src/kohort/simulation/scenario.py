"""A scenario: everything a run needs, as values that can be written down, read and made smaller."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, fields
from typing import TypeVar

from kohort.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """A member and its application.

    Attributes:
        name: Its name in traces; also its client id.
        start_ms: When it starts.
        topics: What it subscribes to.
        protocol: Which member machine it runs, a key of `protocols.PROTOCOLS`; empty: that of the
            scenario.
        assignors: Names of its assignors, the best liked first.
        instance: Its group instance id, empty for a dynamic member.
        session_timeout_ms: `session.timeout.ms`.
        heartbeat_interval_ms: `heartbeat.interval.ms`.
        max_poll_interval_ms: `max.poll.interval.ms`.
        commit: "auto" (with polls, and when partitions are revoked), "sync" (after each batch) or
            "async" (after each batch, without waiting).
        auto_commit_ms: Time between automatic commits.
        process_ms: Mean time to process a batch.
        batch: Most records of one poll.
        listener_ms: How long its listener takes.
        drift_ppm: How much faster its clock runs than true time, in millionths.
    """

    name: str
    start_ms: int = 0
    topics: tuple[str, ...] = ("flights",)
    protocol: str = ""
    assignors: tuple[str, ...] = ("range",)
    instance: str = ""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    commit: str = "auto"
    auto_commit_ms: int = 5_000
    process_ms: int = 20
    batch: int = 500
    listener_ms: int = 0
    drift_ppm: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A topic and who produces to it.

    Attributes:
        name: Its name.
        partitions: How many partitions it has at first.
        every_ms: Time between bursts of records; 0: there are none.
        burst: Most records of a burst, for each partition.
    """

    name: str
    partitions: int = 6
    every_ms: int = 20_000
    burst: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """What the network does all the time.

    Attributes:
        delay_ms: Mean delay of a message, one way.
        tail: Share of messages that are much later.
        tail_ms: Mean of their delay.
        loss: Share of messages after which the connection is dead and nobody is told.
    """

    delay_ms: int = 2
    tail: float = 0.0
    tail_ms: int = 0
    loss: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that happens once.

    Attributes:
        kind: What, a key of `faults.FAULTS`.
        at_ms: When.
        target: To whom: a member, a topic, or empty for the coordinator.
        lasts_ms: For how long.
        detail: Which variant.
    """

    kind: str
    at_ms: int
    target: str = ""
    lasts_ms: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A run, before it has happened.

    Attributes:
        seed: Seed of all delays and durations that are not written down here.
        protocol: Group protocol of the members, a key of `protocols.PROTOCOLS`.
        minutes: Length of the phase in which faults happen.
        initial_delay_ms: `group.initial.rebalance.delay.ms`.
        group_max_size: `group.max.size`.
        members: The members.
        topics: The topics.
        weather: What the network does all the time.
        faults: What happens once.
    """

    seed: int
    protocol: str = "classic"
    minutes: int = 10
    initial_delay_ms: int = 3_000
    group_max_size: int = 1_000
    members: tuple[MemberPlan, ...] = ()
    topics: tuple[TopicPlan, ...] = ()
    weather: Weather = Weather()
    faults: tuple[Fault, ...] = ()

    @property
    def duration_ms(self) -> int:
        """Length of the phase in which faults happen, in milliseconds."""
        return self.minutes * 60_000


# ----------------------------------------------------------------------------------------- as TOML


def to_toml(scenario: Scenario, comment: str = "") -> str:
    """Write a scenario down; what has its default value is left out.

    Args:
        scenario: The scenario.
        comment: What to say at the top, one line or several.
    """
    lines = [f"# {line}" for line in comment.splitlines()]
    for entry in fields(scenario):
        value = getattr(scenario, entry.name)
        if isinstance(value, int | str) and (value != entry.default or entry.name == "seed"):
            lines.append(f"{entry.name} = {_toml(value)}")
    if scenario.weather != Weather():
        lines += ["", "[weather]", *_changed(scenario.weather)]
    for title in ("topics", "members", "faults"):
        for each in getattr(scenario, title):
            lines += ["", f"[[{title}]]", *_changed(each)]
    return "\n".join(lines) + "\n"


def _changed(value: MemberPlan | TopicPlan | Weather | Fault) -> list[str]:
    """Return the fields that differ from their defaults, as TOML."""
    found = asdict(value)
    return [
        f"{entry.name} = {_toml(found[entry.name])}"
        for entry in fields(value)
        if found[entry.name] != entry.default
    ]


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


def from_toml(text: str) -> Scenario:
    """Read a scenario.

    Raises:
        ConfigError: It is not TOML, or a key is not known or has a value of the wrong kind.
    """
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not a scenario: {error}") from None
    parts = {
        "members": tuple(_made(MemberPlan, each) for each in read.pop("members", [])),
        "topics": tuple(_made(TopicPlan, each) for each in read.pop("topics", [])),
        "faults": tuple(_made(Fault, each) for each in read.pop("faults", [])),
        "weather": _made(Weather, read.pop("weather", {})),
    }
    return _made(Scenario, {"seed": 0, **read, **parts})


def _made(kind: type[T], values: dict[str, object]) -> T:
    values = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    try:
        return kind(**values)
    except TypeError as error:
        raise ConfigError(f"not a scenario: {error}") from None
