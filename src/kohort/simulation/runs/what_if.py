"""What-if runs: a user's scenario under each group protocol, side by side.

A scenario file has the format of `scenario`, with two additions: a member may have a `count`, and
there may be a rolling restart.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from kohort.errors import ConfigError
from kohort.group.assignors import BUILTIN_ASSIGNORS
from kohort.observe.timeline import OwnershipTimeline, Span
from kohort.simulation.checkers import CHECKERS
from kohort.simulation.faults.kinds import FAULTS
from kohort.simulation.groups.base import BaseClient
from kohort.simulation.groups.protocols import PROTOCOLS
from kohort.simulation.groups.world import World
from kohort.simulation.runs.running import OK, Outcome, Owners, run_world
from kohort.simulation.runs.scenario import Fault, Scenario, from_values, made, nearest
from kohort.values import replace

_ASSIGNMENT_MS = 5
# Faults whose target is a topic.
_ON_TOPICS = frozenset({"grow", "delete_topic"})


class RollingRestart(Struct, frozen=True, kw_only=True):
    """Members are restarted one after the other.

    Attributes:
        at_ms: When the first one closes.
        every_ms: Time from one to the next.
        down_ms: How long each is down.
        graceful: Whether it closes its consumer before; otherwise its process is killed.
        members: Names of the members, in this order; empty: all of them.
    """

    at_ms: int = 60_000
    every_ms: int = 30_000
    down_ms: int = 5_000
    graceful: bool = True
    members: tuple[str, ...] = ()

    def faults(self, names: Sequence[str]) -> tuple[Fault, ...]:
        """Return the faults of the restart; without own names, of these members."""
        kind = "restart" if self.graceful else "kill"
        return tuple(
            Fault(
                kind=kind,
                at_ms=self.at_ms + number * self.every_ms,
                target=name,
                lasts_ms=self.down_ms,
            )
            for number, name in enumerate(self.members or names)
        )


def read_scenario(text: str) -> Scenario:
    """Read a scenario file, and check its names.

    Raises:
        ConfigError: It is not TOML, a key or a name is not known, or a value is of the wrong kind.
    """
    try:
        values: dict[str, object] = dict(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}") from None
    restart = values.pop("rolling_restart", None)
    values["members"] = _expanded(values.get("members", []))
    scenario = from_values(values)
    if restart is not None:
        plan = made(RollingRestart, restart, "[rolling_restart]")
        faults = plan.faults([member.name for member in scenario.members])
        scenario = replace(scenario, faults=(*scenario.faults, *faults))
    _check(scenario)
    return scenario


def _expanded(members: object) -> object:
    """Expand a member with a `count` to that many members, each with its own name."""
    if not isinstance(members, list):
        return members
    found: list[object] = []
    for each in members:
        if not isinstance(each, dict) or "count" not in each:
            found.append(each)
            continue
        count = each["count"]
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ConfigError(f"count in [[members]] cannot be {count!r}")
        found.extend(_copy(each, number) for number in range(1, count + 1))
    return found


def _copy(member: dict[str, object], number: int) -> dict[str, object]:
    copied = {key: value for key, value in member.items() if key != "count"}
    for key in ("name", "instance"):
        if copied.get(key):
            copied[key] = f"{copied[key]}-{number}"
    return copied


def _check(scenario: Scenario) -> None:
    """Check the names in a scenario.

    Raises:
        ConfigError: A name is unknown or used twice.
    """
    members = Counter(member.name for member in scenario.members)
    topics = Counter(topic.name for topic in scenario.topics)
    if not members or not topics:
        raise ConfigError("a scenario needs [[members]] and [[topics]]")
    for names in (members, topics):
        twice = [name for name, count in names.items() if count > 1]
        if twice:
            raise ConfigError(f"two have the name {twice[0]!r}")
    _known("protocol", [scenario.protocol], PROTOCOLS)
    for member in scenario.members:
        _known("protocol", [member.protocol] if member.protocol else [], PROTOCOLS)
        _known("topic", member.topics, topics)
        _known("assignor", member.assignors, BUILTIN_ASSIGNORS)
    for fault in scenario.faults:
        _known("fault", [fault.kind], FAULTS)
        targets = topics if fault.kind in _ON_TOPICS else members
        _known("target", [fault.target] if fault.target else [], targets)
        if fault.at_ms >= scenario.duration_ms:
            end = f"{scenario.minutes} minutes"
            raise ConfigError(f"{fault.kind} at {fault.at_ms} ms is after the end: {end}")


def _known(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(f"no {what} {name!r}{nearest(name, known)}")


# ---------------------------------------------------------------------------------- measuring


class Measured(Struct, frozen=True, kw_only=True):
    """The results of a scenario under one protocol, over all its runs.

    Attributes:
        protocol: The protocol.
        runs: How many runs there were.
        rounds: Generations, or epochs under KIP-848, that began since the first change.
        moved: How often a partition moved between members since then.
        gaps_ms: The times without an owner of partitions that lost theirs since then, sorted.
        repeated: How many records were handed out more than once.
        verdicts: The broken rules, if any.
    """

    protocol: str
    runs: int
    rounds: int
    moved: int
    gaps_ms: tuple[int, ...]
    repeated: int
    verdicts: tuple[str, ...]

    def unowned_ms(self, share: float) -> int:
        """Return the time that this share of all gaps does not exceed (nearest rank)."""
        if not self.gaps_ms:
            return 0
        rank = -int(-share * len(self.gaps_ms) // 1)
        return self.gaps_ms[min(max(rank, 1), len(self.gaps_ms)) - 1]


def compare(
    scenario: Scenario,
    protocols: Iterable[str],
    runs: int,
    tell: Callable[[str, int], None],
) -> list[Measured]:
    """Run a scenario under each protocol, with several seeds.

    Args:
        scenario: The scenario; its own protocol is ignored.
        protocols: The protocols.
        runs: How many seeds, beginning with that of the scenario.
        tell: Called before each run, with its protocol and its number.
    """
    return [_measure(under(scenario, name), runs, tell) for name in protocols]


def under(scenario: Scenario, protocol: str) -> Scenario:
    """Return a scenario with all its members under one protocol.

    The assignors it names are those of the classic protocol; the others have their own.
    """
    members = tuple(
        replace(each, protocol="", assignors=each.assignors if protocol == "classic" else ())
        for each in scenario.members
    )
    return replace(scenario, protocol=protocol, members=members)


class _AsPlanned(World):
    """A world in which only the scenario's events happen."""

    def job_ms(self, _client: BaseClient) -> int:
        """Return how long a leader's assignment takes; never as long as a drawn one."""
        return _ASSIGNMENT_MS

    def coordinator_job_ms(self) -> int:
        """Return how long a job of the coordinator takes."""
        return _ASSIGNMENT_MS


def first_change_ms(scenario: Scenario) -> int:
    """Return the time of the first planned change of a scenario: a fault, or a later start.

    Earlier rebalances of the first members are not a cost of the change.
    """
    starts = [member.start_ms for member in scenario.members if member.start_ms]
    return min([*starts, *(fault.at_ms for fault in scenario.faults)], default=0)


def _measure(scenario: Scenario, runs: int, tell: Callable[[str, int], None]) -> Measured:
    rounds = moved = repeated = 0
    gaps: list[int] = []
    verdicts: list[str] = []
    since = first_change_ms(scenario)
    for number in range(runs):
        tell(scenario.protocol, number)
        world = _AsPlanned(replace(scenario, seed=scenario.seed + number), checkers=CHECKERS)
        owners, before = Owners(world), [0]
        world.engine.at(since, None, lambda w, b: b.append(_rounds(w)), world, before)
        outcome = run_world(world)
        rounds += _rounds(world) - before[-1]
        found, changes = _gaps(owners.timeline(), since, outcome.simulated_ms)
        gaps += found
        moved += changes
        repeated += outcome.repeated
        verdicts += _verdict(outcome)
    return Measured(
        protocol=scenario.protocol,
        runs=runs,
        rounds=rounds,
        moved=moved,
        gaps_ms=tuple(sorted(gaps)),
        repeated=repeated,
        verdicts=tuple(verdicts),
    )


def _rounds(world: World) -> int:
    has_epochs = PROTOCOLS[world.scenario.protocol].has_epochs
    return world.ledger.rebalances if has_epochs else world.ledger.generations


def _verdict(outcome: Outcome) -> list[str]:
    if outcome.verdict == OK:
        return []
    return [f"seed {outcome.scenario.seed}: {outcome.complaint}"]


def _gaps(timeline: OwnershipTimeline, since_ms: int, until_ms: int) -> tuple[list[int], int]:
    """Return the times without an owner, and how often partitions moved, since a moment."""
    gaps: list[int] = []
    moved = 0
    for partition in timeline.partitions:
        owned = _since_first_owner(timeline.spans(partition, until_ms))
        gaps += [s.duration_ms for s in owned if s.owner is None and s.start_ms >= since_ms]
        named = [span for span in owned if span.owner is not None]
        moved += sum(
            before.owner != after.owner and after.start_ms >= since_ms
            for before, after in pairwise(named)
        )
    return gaps, moved


def _since_first_owner(spans: list[Span]) -> list[Span]:
    return spans[1:] if spans and spans[0].owner is None else spans
