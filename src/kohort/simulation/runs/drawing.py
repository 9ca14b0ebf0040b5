"""From a seed to a scenario, swarm style: each run draws its own mix of faults.

A kind of fault is on or off for the whole run and has a strength. So some runs have many faults of
one kind, and find bugs that an even mix never reaches.
"""

from __future__ import annotations

from collections.abc import Callable

from kohort.group.coordinator.migration.policy import BIDIRECTIONAL, POLICIES
from kohort.simulation.engine import Stream
from kohort.simulation.faults.consumer_strangers import CONSUMER_REQUESTS
from kohort.simulation.faults.members import GARBAGE
from kohort.simulation.faults.strangers import DRAFT_REQUESTS, REQUESTS
from kohort.simulation.groups.protocols import MIGRATION
from kohort.simulation.runs.scenario import Fault, MemberPlan, Scenario, TopicPlan, Weather
from kohort.values import replace

_S = 1_000
Draw = Callable[[Stream, list[MemberPlan], int], Fault]

CODES = (
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "REBALANCE_IN_PROGRESS",
    "UNKNOWN_MEMBER_ID",
    "ILLEGAL_GENERATION",
    "REQUEST_TIMED_OUT",
    "GROUP_AUTHORIZATION_FAILED",
)
KINDS = (
    "ConsumerGroupHeartbeat",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "OffsetCommit",
    "OffsetFetch",
    "LeaveGroup",
)
LOOKUP_CODES = ("COORDINATOR_NOT_AVAILABLE", "GROUP_AUTHORIZATION_FAILED")
APPEND_CODES = ("NOT_ENOUGH_REPLICAS", "KAFKA_STORAGE_ERROR", "REQUEST_TIMED_OUT")
# A tool's commit creates a group without members, to which the second request then goes.
_AFTER_COMMIT = (
    "join_other",
    "sync_other",
    "tool_commits",
    "tool_commits_as_member",
    "tool_commits_as_empty",
    "delete",
    "delete_offset_other",
)
_PAIRS = (
    *(f"tool_commits+{kind}" for kind in _AFTER_COMMIT),
    "workers_join+delete_offset_workers",
)
_CALLS = (
    "unsubscribe+close",
    "unsubscribe+unsubscribe+subscribe",
    "unsubscribe+subscribe",
    "close",
)
# A member that leaves slowly can change its subscription more than once before it has left.
_MORE_CALLS = ("unsubscribe+subscribe+unsubscribe+subscribe", "unsubscribe+subscribe+close")
_TOPICS = ("flights", "delays", "flights,delays")
_ASSIGNING = ("ConsumerGroupPrepareAssignment", "ConsumerGroupInstallAssignment")
_PATTERNS = ("flights.*", "flights|delays", ".*", "(flights|weather).*|delays")
_COMING = ("flights-east", "flights-west", "weather")
# Faults that rarely hit a draft group during a rebalance.
_WHILE_BUSY = ("draft_with_other_topics",) * 5
DYING = ("before append", "in append", "after append", "after a reply")


def _on_member(kind: str, low: int, high: int, *details: str) -> Draw:
    def draw(chance: Stream, members: list[MemberPlan], at: int) -> Fault:
        target = chance.choice(members).name
        lasts = chance.between(low, high)
        detail = chance.choice(details) if details else ""
        return Fault(kind=kind, at_ms=at, target=target, lasts_ms=lasts, detail=detail)

    return draw


def _on_cluster(kind: str, low: int, high: int, *details: str) -> Draw:
    def draw(chance: Stream, _members: list[MemberPlan], at: int) -> Fault:
        lasts = chance.between(low, high)
        detail = chance.choice(details) if details else ""
        return Fault(kind=kind, at_ms=at, lasts_ms=lasts, detail=detail)

    return draw


def _on_topic(kind: str, low: int, high: int, *details: str) -> Draw:
    def draw(chance: Stream, _members: list[MemberPlan], at: int) -> Fault:
        target = chance.choice(("flights", "delays"))
        lasts = chance.between(low, high)
        detail = chance.choice(details) if details else ""
        return Fault(kind=kind, at_ms=at, target=target, lasts_ms=lasts, detail=detail)

    return draw


def _inject(kind: str, *requests: str) -> Draw:
    def draw(chance: Stream, _members: list[MemberPlan], at: int) -> Fault:
        detail = f"{chance.choice(requests)}={chance.choice(CODES)}"
        return Fault(kind=kind, at_ms=at, detail=detail)

    return draw


# The faults, and how many of each at most in ten minutes.
PALETTE: dict[str, tuple[Draw, int]] = {
    "reset": (_on_member("reset", 0, 0, "lingers", ""), 12),
    "half_open": (_on_member("half_open", 0, 0), 6),
    "cut": (_on_member("cut", 1 * _S, 60 * _S, "up", "down", ""), 6),
    "cut_all": (_on_cluster("cut_all", 1 * _S, 40 * _S), 3),
    "repeat": (_on_cluster("repeat", 0, 0), 10),
    "kill": (_on_member("kill", 0, 60 * _S), 6),
    "die_in_the_middle": (_on_member("die_in_the_middle", 0, 0, "before", "after sends"), 5),
    "pause": (_on_member("pause", 1 * _S, 90 * _S), 5),
    "stall": (_on_member("stall", 5 * _S, 150 * _S), 5),
    "listener": (_on_member("listener", 0, 20 * _S, "", "raises", "commits", "rejoins"), 5),
    "close": (_on_member("close", 0, 60 * _S), 6),
    "unsubscribe": (_on_member("unsubscribe", 1 * _S, 60 * _S), 5),
    "leave": (_on_member("leave", 0, 400, *_CALLS), 6),
    "leave_slowly": (_on_member("leave_slowly", 0, 1 * _S, *_CALLS, *_MORE_CALLS), 6),
    "leave_lost": (_on_member("leave_lost", 0, 20 * _S, *_CALLS), 6),
    "leave_refused": (_on_member("leave_refused", 0, 400, *_CALLS), 4),
    "leave_beating": (_on_member("leave_beating", 0, 400, *CODES), 6),
    "leave_early": (_on_member("leave_early", 0, 60, *_CALLS), 6),
    "stall_unheard": (_on_member("stall_unheard", 0, 20 * _S, *_TOPICS), 3),
    "refused_in_call": (_on_member("refused_in_call", 0, 0), 4),
    "resubscribe": (_on_member("resubscribe", 0, 0, *_TOPICS), 6),
    "rejoin": (_on_member("rejoin", 0, 0), 8),
    "twin": (_on_member("twin", 0, 0), 6),
    "upgrade": (_on_member("upgrade", 1 * _S, 5 * _S, "range", "roundrobin,range"), 4),
    "assignor_raises": (_on_member("assignor_raises", 0, 0), 4),
    "long_assignment": (_on_member("long_assignment", 4 * _S, 12 * _S, *CODES), 4),
    "fence": (_on_member("fence", 0, 0), 3),
    "clock_jump": (_on_member("clock_jump", 1 * _S, 70 * _S), 4),
    "wall_step": (_on_cluster("wall_step", 1 * _S, 86_400 * _S, "back", ""), 2),
    "failover": (_on_cluster("failover", 10, 20 * _S, "0", "500", "15000", "60000"), 5),
    "coordinator_crash": (_on_cluster("coordinator_crash", 1 * _S, 30 * _S), 4),
    "coordinator_dies_writing": (_on_cluster("coordinator_dies_writing", 0, 0, *DYING), 5),
    "coordinator_pause": (_on_cluster("coordinator_pause", 1 * _S, 60 * _S, "", "replaced"), 3),
    "append_fails": (_on_cluster("append_fails", 0, 0, *APPEND_CODES), 4),
    "compact": (_on_cluster("compact", 0, 0), 6),
    "compact_while_loading": (_on_cluster("compact_while_loading", 100, 20 * _S), 3),
    "log_damage": (_on_cluster("log_damage", 0, 1_000_000, "bit flip", "lost end"), 2),
    "inject": (_inject("inject", *KINDS), 24),
    "lookups_fail": (_on_cluster("lookups_fail", 1 * _S, 40 * _S, *LOOKUP_CODES), 5),
    "stale_lookups": (_on_member("stale_lookups", 5 * _S, 60 * _S), 4),
    "stranger": (_on_member("stranger", 0, 0, *REQUESTS, *_PAIRS), 20),
    "shrink_group": (_on_cluster("shrink_group", 20 * _S, 60 * _S, "1", "2"), 1),
    "grow": (_on_topic("grow", 1 * _S, 30 * _S, "1", "3"), 3),
    "delete_topic": (_on_topic("delete_topic", 5 * _S, 60 * _S), 2),
    "job_fails": (_on_cluster("job_fails", 0, 0), 4),
    "inject_draft": (_inject("inject_draft", "DraftJoinGroup", "DraftHeartbeat"), 12),
    "migrate": (_on_member("migrate", 0, 20 * _S, "classic", "consumer"), 16),
    "assignor_garbage": (_on_member("assignor_garbage", 0, 0, *GARBAGE), 8),
    "computation_breaks": (_on_member("computation_breaks", 0, 0), 6),
    "inject_assignment": (_inject("inject_assignment", *_ASSIGNING), 8),
    "consumer_stranger": (_on_member("consumer_stranger", 0, 0, *CONSUMER_REQUESTS), 8),
    "repattern": (_on_member("repattern", 0, 0, *_PATTERNS), 4),
    "topic_comes": (_on_cluster("topic_comes", 5 * _S, 200 * _S, *_COMING), 6),
    "draft_stranger": (_on_member("draft_stranger", 0, 0, *DRAFT_REQUESTS, *_WHILE_BUSY), 30),
}
# Kinds that apply only to some protocols.
_WITH_EPOCHS = frozenset({"consumer", "client-side", MIGRATION})
ONLY_IN: dict[str, frozenset[str]] = {
    "long_assignment": frozenset({"classic", "cooperative", MIGRATION}),
    "inject_draft": frozenset({"draft"}),
    "draft_stranger": frozenset({"draft"}),
    "migrate": frozenset({MIGRATION}),
    "assignor_garbage": frozenset({"client-side"}),
    "inject_assignment": frozenset({"client-side"}),
    "computation_breaks": frozenset({"client-side"}),
    "consumer_stranger": _WITH_EPOCHS,
    "repattern": _WITH_EPOCHS,
    "topic_comes": _WITH_EPOCHS,
}
# Kinds that are always on where they mean something; the last two where there are expressions.
_ALWAYS = frozenset(
    {"inject_draft", "draft_stranger", "migrate", "assignor_garbage", "computation_breaks"}
)
_WITH_PATTERNS = frozenset({"repattern", "topic_comes"})
_ON = 0.25
_PATTERNED = 0.3
_POLICIES = (BIDIRECTIONAL, BIDIRECTIONAL, *POLICIES)
# The assignors of classic members in a group that migrates: all of one line.
_ASSIGNORS = (
    (("range",), ("roundrobin", "range")),
    (("cooperative-sticky",),),
    (("cooperative-sticky", "range"), ("range",)),
)


def draw(seed: int, protocol: str = "classic", minutes: int | None = None) -> Scenario:
    """Return the scenario of a seed.

    Args:
        seed: The seed.
        protocol: Group protocol of its members.
        minutes: How long faults happen; None: from 10 to 20 minutes, drawn.
    """
    chance = Stream(seed, "scenario", protocol)
    minutes = chance.between(10, 20) if minutes is None else minutes
    members = _as_spoken(seed, protocol, _members(chance, protocol))
    migration = Stream(seed, "migration")
    return Scenario(
        seed=seed,
        protocol=protocol,
        minutes=minutes,
        initial_delay_ms=chance.choice((0, 0, 500, 3_000)),
        group_max_size=chance.choice((1_000, 1_000, 1_000, len(members))),
        migration_policy=migration.choice(_POLICIES) if protocol == MIGRATION else BIDIRECTIONAL,
        members=tuple(members),
        topics=_topics(chance),
        weather=_weather(chance),
        faults=draw_faults(seed, members, minutes, protocol),
    )


def draw_faults(
    seed: int,
    members: list[MemberPlan],
    minutes: int,
    protocol: str,
    only: frozenset[str] = frozenset(),
) -> tuple[Fault, ...]:
    """Return the faults of a seed, in the order of their times.

    Args:
        seed: The seed.
        members: Their possible targets.
        minutes: How long they happen.
        protocol: Protocol of the scenario; some kinds apply only to one.
        only: Kinds to draw from; empty: all of them.
    """
    faults: list[Fault] = []
    has_patterns = any(plan.pattern for plan in members)
    for kind, (make, most) in PALETTE.items():
        chance = Stream(seed, "fault", kind)
        on = chance.happens(_ON) or kind in _ALWAYS or (has_patterns and kind in _WITH_PATTERNS)
        count = chance.between(1, most * minutes // 10)
        if protocol not in ONLY_IN.get(kind, (protocol,)):
            continue
        if (kind in only) if only else on:
            for _ in range(count):
                at = chance.between(1_000, minutes * 60_000 - 1)
                faults.append(make(chance, members, at))
    return tuple(sorted(faults, key=lambda each: (each.at_ms, each.kind, each.target)))


def _members(chance: Stream, protocol: str) -> list[MemberPlan]:
    count = chance.between(3, 6)
    session = chance.choice((6, 10, 10, 45)) * _S
    poll = chance.choice((20, 60, 60, 300)) * _S
    static = chance.choice((0.0, 0.0, 0.5, 1.0))
    slow = chance.choice((0, 0, 500, 5_000))
    drift = chance.choice((0, 0, 500, 20_000))
    return [
        MemberPlan(
            name=f"member-{number}",
            start_ms=int(chance.exponential(chance.choice((10, 20_000)))),
            topics=chance.choice((("flights",), ("flights",), ("flights", "delays"))),
            assignors=_assignors(chance, protocol),
            instance=f"instance-{number}" if chance.happens(static) else "",
            session_timeout_ms=session,
            heartbeat_interval_ms=min(3_000, session // 3),
            max_poll_interval_ms=poll,
            commit=chance.choice(("auto", "auto", "sync", "async")),
            process_ms=chance.choice((5, 50, 500)),
            # A listener slower than the rebalance may be is a storm by configuration.
            listener_ms=min(int(chance.exponential(slow)), poll // 4) if slow else 0,
            drift_ppm=chance.between(-drift, drift),
        )
        for number in range(1, count + 1)
    ]


def _as_spoken(seed: int, protocol: str, plans: list[MemberPlan]) -> list[MemberPlan]:
    """Return members without settings that their protocol does not support."""
    if protocol == "draft":
        return [_of_draft(plan) for plan in plans]
    if protocol == MIGRATION:
        chance = Stream(seed, "members", protocol)
        begins_as = chance.choice(("classic", "classic", "consumer"))
        lists = chance.choice(_ASSIGNORS)
        return [replace(plan, protocol=begins_as, assignors=chance.choice(lists)) for plan in plans]
    return plans


def _of_draft(plan: MemberPlan) -> MemberPlan:
    """Return a member without settings that the draft protocol does not support.

    There are no static members, and a rebalance is waited for no longer than a session (D13): a
    listener that takes longer is thrown out each time.
    """
    longest = plan.session_timeout_ms // 4
    return replace(plan, instance="", listener_ms=min(plan.listener_ms, longest))


def _assignors(chance: Stream, protocol: str) -> tuple[str, ...]:
    number = chance.uniform()
    if protocol != "classic":
        return ()
    return ("range",) if number < 0.8 else ("roundrobin", "range")


def _topics(chance: Stream) -> tuple[TopicPlan, ...]:
    return tuple(
        TopicPlan(
            name=name,
            partitions=chance.between(1, 8),
            every_ms=chance.choice((5_000, 20_000, 60_000)),
            burst=chance.choice((3, 20, 200)),
        )
        for name in ("flights", "delays")
    )


def _weather(chance: Stream) -> Weather:
    kind = chance.between(0, 3)
    mean = chance.choice((1, 3, 20, 100))
    tail = chance.choice((0.01, 0.05))
    loss = chance.choice((0.0, 0.001, 0.01))
    if kind < 2:
        return Weather(delay_ms=mean)
    return Weather(delay_ms=mean, tail=tail, tail_ms=3_000, loss=loss if kind == 3 else 0.0)
