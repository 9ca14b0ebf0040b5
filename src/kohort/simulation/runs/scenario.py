"""A scenario: everything that a run needs, as values to write, read and shrink."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from typing import TypeVar, get_args, get_type_hints

from msgspec import Struct
from msgspec.structs import asdict

from kohort.errors import ConfigError
from kohort.values import defaults

T = TypeVar("T")


class MemberPlan(Struct, frozen=True, kw_only=True):
    """A member and its application.

    Attributes:
        name: Its name in traces; also its client id.
        start_ms: When it starts.
        topics: The topics that it subscribes to.
        pattern: Or a regular expression, if it speaks a protocol that has them (KIP-848).
        protocol: Which member machine it runs, a key of `protocols.PROTOCOLS`; empty: that of the
            scenario.
        assignors: Names of its assignors, in order of preference.
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
        drift_ppm: How much faster than true time its clock runs, in millionths.
    """

    name: str
    start_ms: int = 0
    topics: tuple[str, ...] = ("flights",)
    pattern: str = ""
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


class TopicPlan(Struct, frozen=True, kw_only=True):
    """A topic and its records.

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


class Weather(Struct, frozen=True, kw_only=True):
    """The delays and losses of the network.

    Attributes:
        delay_ms: Mean delay of a message, one way.
        tail: Share of messages that are much later.
        tail_ms: Mean of their delay.
        loss: Share of messages after which the connection is dead and no side notices.
    """

    delay_ms: int = 2
    tail: float = 0.0
    tail_ms: int = 0
    loss: float = 0.0


class Fault(Struct, frozen=True, kw_only=True):
    """A single fault.

    Attributes:
        kind: Its kind, a key of `faults.FAULTS`.
        at_ms: When it happens.
        target: A member, a topic, or empty for the coordinator.
        lasts_ms: How long it lasts.
        detail: Its variant.
    """

    kind: str
    at_ms: int
    target: str = ""
    lasts_ms: int = 0
    detail: str = ""


class Scenario(Struct, frozen=True, kw_only=True):
    """A run, before it has happened.

    Attributes:
        seed: Seed of all delays and durations that are not in the scenario.
        protocol: Group protocol of the members, one of `protocols.CAMPAIGNS`.
        minutes: Length of the phase in which faults happen.
        initial_delay_ms: `group.initial.rebalance.delay.ms`.
        group_max_size: `group.max.size`.
        migration_policy: `group.consumer.migration.policy`.
        retention_ms: `offsets.retention.minutes`; checked as often, and every ten minutes.
        members: The members.
        topics: The topics.
        weather: The delays and losses of the network.
        faults: The faults.
    """

    seed: int
    protocol: str = "classic"
    minutes: int = 10
    initial_delay_ms: int = 3_000
    group_max_size: int = 1_000
    migration_policy: str = "bidirectional"
    retention_ms: int = 7 * 24 * 3_600 * 1_000
    members: tuple[MemberPlan, ...] = ()
    topics: tuple[TopicPlan, ...] = ()
    weather: Weather = Weather()
    faults: tuple[Fault, ...] = ()

    def __repr__(self) -> str:
        """Return a summary; `to_toml` has everything."""
        parts = (
            f"seed={self.seed}, protocol={self.protocol!r}, {len(self.members)} members,"
            f" {len(self.topics)} topics, {len(self.faults)} faults, {self.minutes} minutes"
        )
        return f"<Scenario {parts}>"

    @property
    def duration_ms(self) -> int:
        """Length of the phase in which faults happen, in milliseconds."""
        return self.minutes * 60_000


# ----------------------------------------------------------------------------------------- as TOML


def to_toml(scenario: Scenario, comment: str = "") -> str:
    """Return a scenario as TOML, without default values.

    Args:
        scenario: The scenario.
        comment: A comment for the top, of one or several lines.
    """
    lines = [f"# {line}" for line in comment.splitlines()]
    for name, default in defaults(Scenario).items():
        value = getattr(scenario, name)
        if isinstance(value, int | str) and (value != default or name == "seed"):
            lines.append(f"{name} = {_toml(value)}")
    if scenario.weather != Weather():
        lines += ["", "[weather]", *_changed(scenario.weather)]
    for title in ("topics", "members", "faults"):
        for each in getattr(scenario, title):
            lines += ["", f"[[{title}]]", *_changed(each)]
    return "\n".join(lines) + "\n"


def _changed(value: MemberPlan | TopicPlan | Weather | Fault) -> list[str]:
    """Return the fields that differ from their defaults, as TOML."""
    usual = defaults(type(value))
    return [
        f"{name} = {_toml(each)}" for name, each in asdict(value).items() if each != usual[name]
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
        return from_values(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, ConfigError) as error:
        raise ConfigError(f"not a scenario: {error}") from None


def from_values(values: Mapping[str, object]) -> Scenario:
    """Make a scenario from the content of a TOML file.

    Raises:
        ConfigError: A key is not known or has a value of the wrong kind.
    """
    read = dict(values)
    for title, kind in (("members", MemberPlan), ("topics", TopicPlan), ("faults", Fault)):
        tables = read.get(title, [])
        if not isinstance(tables, list):
            raise ConfigError(f"{title} must be written as [[{title}]]")
        read[title] = tuple(made(kind, each, f"[[{title}]]") for each in tables)
    read["weather"] = made(Weather, read.get("weather", {}), "[weather]")
    return made(Scenario, {"seed": 0, **read}, "the scenario")


def made(kind: type[T], values: object, where: str) -> T:
    """Make a value from a table.

    Args:
        kind: A class of this module or one like them: fields, most with a default.
        values: The table.
        where: How to name it in an error.

    Raises:
        ConfigError: A key is not known, missing, or has a value of the wrong kind.
    """
    if not isinstance(values, dict):
        raise ConfigError(f"{where} must be a table")
    hints = get_type_hints(kind)
    arguments: dict[str, object] = {}
    for key, value in values.items():
        if key not in hints:
            raise ConfigError(f"unknown key {key!r} in {where}{nearest(key, hints)}")
        arguments[key] = tuple(value) if isinstance(value, list) else value
        if not _fits(arguments[key], hints[key]):
            raise ConfigError(f"{key} in {where} cannot be {value!r}")
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from None


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: a similar known name, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(names)}"


def _fits(value: object, hint: object) -> bool:
    if hint is bool or isinstance(value, bool):
        return hint is bool and isinstance(value, bool)
    if hint is float:
        return isinstance(value, int | float)
    if isinstance(hint, type) and hint in (int, str, Weather):
        return isinstance(value, hint)
    inner = get_args(hint)[0]
    return isinstance(value, tuple) and all(isinstance(each, inner) for each in value)
