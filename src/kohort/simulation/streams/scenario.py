"""The scenario of a simulated stream application, drawn from a seed."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from kohort.errors import ConfigError
from kohort.simulation.engine import Stream
from kohort.simulation.groups.protocols import COOPERATIVE
from kohort.simulation.runs.drawing import PALETTE
from kohort.simulation.runs.scenario import Fault, MemberPlan, Scenario, TopicPlan, Weather
from kohort.streams.assignment.plan import ASSIGNOR
from kohort.streams.assignment.settings import LearnerSettings

# Topics of the application.
INPUT, STATELESS, CHANGELOG, OUTPUT = "flights", "views", "app-counts-changelog", "totals"
_S = 1_000

STEPS = (
    "processed",
    "send changes",
    "commit offsets",
    "offsets are committed",
    "flush",
    "checkpoint",
    "say released",
    "said released",
    "say started",
    "said started",
    "join",
    "lead",
    "led",
    "ask for a rebalance",
    "told of what is assigned",
    "told of what is revoked",
)
"""The steps at which a process can be made to die."""

GROUP_KINDS = (
    "reset",
    "half_open",
    "cut",
    "cut_all",
    "kill",
    "pause",
    "stall",
    "restart",
    "rejoin",
    "clock_jump",
    "failover",
    "coordinator_crash",
    "coordinator_dies_writing",
    "append_fails",
    "compact",
    "compact_while_loading",
    "inject",
    "lookups_fail",
)
"""The faults of groups that a stream application meets too."""

OWN_KINDS = ("die_at_step", "leave_soon", "slow", "stuck", "new_leaders")
"""The faults that only it has, see `faults`."""

_INJECTED = ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "OffsetFetch", "LeaveGroup")
_CODES = (
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "REBALANCE_IN_PROGRESS",
    "REQUEST_TIMED_OUT",
)


class StreamsScenario(Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        group: Members, topics, network and faults.
        handover: "until-grant" or "draft".
        acceptable_recovery_lag: As in `LearnerSettings`, like the next five.
        max_warmup_learners: 0: no limit.
        num_standby_replicas: Standbys of each task.
        imbalance: `stream_imbalance_percentage`.
        is_partial: `learner_partial_rebalance`.
        scale_down_timeout_ms: 0: never.
        commit_interval_ms: As in `StreamSettings`, like the next one.
        checkpoint_interval_ms: Time between checkpoints of followed tasks.
        has_disks: Whether state outlives a process.
        replays_per_s: How many changelog records an instance replays per second; 0: any number.
    """

    group: Scenario
    handover: str = "until-grant"
    acceptable_recovery_lag: int = 100
    max_warmup_learners: int = 2
    num_standby_replicas: int = 0
    imbalance: float = 0.2
    is_partial: bool = True
    scale_down_timeout_ms: int = 0
    commit_interval_ms: int = 1_000
    checkpoint_interval_ms: int = 10_000
    has_disks: bool = True
    replays_per_s: int = 0

    @property
    def seed(self) -> int:
        """The seed of all random choices."""
        return self.group.seed

    def learners(self) -> LearnerSettings:
        """Return the settings of the group for learners."""
        return LearnerSettings(
            handover="draft" if self.handover == "draft" else "until-grant",
            acceptable_recovery_lag=self.acceptable_recovery_lag,
            max_warmup_learners=self.max_warmup_learners or None,
            num_standby_replicas=self.num_standby_replicas,
            stream_imbalance_percentage=self.imbalance,
            learner_partial_rebalance=self.is_partial,
            scale_down_timeout_ms=self.scale_down_timeout_ms or None,
        )


def draw(seed: int) -> StreamsScenario:
    """Return the scenario of a seed; each draws its own mix."""
    chance = Stream(seed, "streams scenario")
    minutes = chance.between(1, 3)
    is_calm = seed % 8 == 0
    topics = [_topic(chance, INPUT, chance.between(2, 12))]
    if chance.happens(0.4):
        topics.append(_topic(chance, STATELESS, chance.between(1, 4)))
    names = tuple(each.name for each in topics)
    members = _members(chance, names, minutes * 60 * _S)
    group = Scenario(
        seed=seed,
        protocol=COOPERATIVE.name,
        minutes=minutes,
        initial_delay_ms=chance.choice((0, 0, 500, 3_000)),
        members=members,
        topics=tuple(topics),
        weather=Weather() if is_calm else _weather(chance),
        faults=_faults(seed, members, minutes, is_calm=is_calm),
    )
    return StreamsScenario(
        group=group,
        handover=chance.choice(("until-grant",) * 4 + ("draft",)),
        acceptable_recovery_lag=chance.choice((0, 10, 100, 10_000)),
        max_warmup_learners=chance.choice((0, 1, 2, 2, 5)),
        num_standby_replicas=chance.choice((0, 0, 0, 1, 2)),
        imbalance=chance.choice((0.0, 0.2, 0.2, 0.5)),
        is_partial=chance.happens(0.6),
        scale_down_timeout_ms=chance.choice((0, 0, 5_000, 30_000)),
        commit_interval_ms=chance.choice((300, 1_000, 1_000, 5_000)),
        checkpoint_interval_ms=chance.choice((2_000, 10_000)),
        has_disks=chance.happens(0.7),
        replays_per_s=chance.choice((0, 0, 50, 200)),
    )


def _members(chance: Stream, topics: tuple[str, ...], duration_ms: int) -> tuple[MemberPlan, ...]:
    """Return the instances: some from the start, others later, sometimes two at once."""
    session = chance.choice((6, 10, 10)) * _S
    drift = chance.choice((0, 0, 500))
    starts = [int(chance.exponential(200)) for _ in range(chance.between(1, 4))]
    for _ in range(chance.between(1, 3)):
        at = chance.between(10 * _S, duration_ms - 10 * _S)
        starts += [at] * (2 if chance.happens(0.3) else 1)
    return tuple(
        MemberPlan(
            name=f"instance-{number}",
            start_ms=start,
            topics=topics,
            assignors=(ASSIGNOR,),
            session_timeout_ms=session,
            heartbeat_interval_ms=session // 4,
            max_poll_interval_ms=60 * _S,
            commit="streams",
            process_ms=chance.choice((0, 5, 50)),
            drift_ppm=chance.between(-drift, drift),
        )
        for number, start in enumerate(starts[:6], start=1)
    )


def _topic(chance: Stream, name: str, partitions: int) -> TopicPlan:
    every_ms = chance.choice((1_000, 2_000, 5_000))
    return TopicPlan(name=name, partitions=partitions, every_ms=every_ms, burst=3)


def _weather(chance: Stream) -> Weather:
    mean = chance.choice((1, 3, 20))
    if chance.happens(0.5):
        return Weather(delay_ms=mean)
    return Weather(delay_ms=mean, tail=0.01, tail_ms=1_500)


def _faults(
    seed: int, members: tuple[MemberPlan, ...], minutes: int, *, is_calm: bool
) -> tuple[Fault, ...]:
    """Return the faults of a seed: a few kinds, each some times; without any, only departures."""
    chance = Stream(seed, "streams faults")
    rough = chance.sample(GROUP_KINDS, chance.between(1, 5))
    own = [kind for kind in OWN_KINDS if chance.happens(0.5)]
    kinds = ["leave_soon"] if is_calm else [*rough, *own]
    faults: list[Fault] = []
    for kind in kinds:
        stream = Stream(seed, "streams fault", kind)
        count, duration_ms = stream.between(1, 3), minutes * 60 * _S
        faults += (_fault(stream, kind, members, duration_ms) for _ in range(count))
    return tuple(sorted(faults, key=lambda each: (each.at_ms, each.kind, each.target)))


def _fault(chance: Stream, kind: str, members: tuple[MemberPlan, ...], duration_ms: int) -> Fault:
    at = chance.between(5 * _S, duration_ms - 1)
    target = chance.choice(members).name
    lasts = chance.between(1 * _S, 20 * _S)
    if kind == "leave_soon":  # the first one stays, to take over the others' tasks
        target = chance.choice(members[1:]).name if members[1:] else ""
        lasts = chance.choice((0, 1, 1)) * lasts
    elif kind == "inject":
        detail = f"{chance.choice(_INJECTED)}={chance.choice(_CODES)}"
        return Fault(kind=kind, at_ms=at, detail=detail)
    elif kind in GROUP_KINDS:
        drawn = PALETTE["close" if kind == "restart" else kind][0](chance, list(members), at)
        if kind == "restart":
            return Fault(kind=kind, at_ms=at, target=drawn.target, lasts_ms=lasts)
        return drawn
    detail = chance.choice(STEPS) if kind == "die_at_step" else ""
    if kind in ("slow", "new_leaders"):
        detail = str(chance.choice((5, 20, 100)))
    return Fault(kind=kind, at_ms=at, target=target, lasts_ms=lasts, detail=detail)


def to_json(scenario: StreamsScenario) -> str:
    """Return a scenario as text, for a file that a run can be repeated from."""
    return msgspec.json.format(msgspec.json.encode(scenario), indent=1).decode()


def from_json(text: str) -> StreamsScenario:
    """Return the scenario of a text.

    Raises:
        ConfigError: It is not one.
    """
    try:
        return msgspec.json.decode(text, type=StreamsScenario)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not a scenario of a stream application: {error}") from None
