"""The leader's and the member's machine: what they ask for, and random histories of them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.group.subscription import Subscription
from kohort.streams.assignment.leader import LEADER, Elected, LeaderState
from kohort.streams.assignment.member import (
    MEMBER,
    JoinStarted,
    LagMeasured,
    LeaveSoon,
    MembershipLost,
    StateRemoved,
    TaskMemberState,
    TasksAssigned,
)
from kohort.streams.assignment.metadata import (
    Claim,
    Instructions,
    decode_claim,
    encode_claim,
    encode_instructions,
)
from kohort.streams.assignment.settings import Handover, LearnerSettings, Rollout
from kohort.streams.assignment.target import band
from kohort.streams.assignment.tasks import Task
from tests.streams.group import FAR, tasks
from tests.streams.machines import TOPOLOGY, World

PARTITIONS = {"orders": 6, "prices": 6, "views": 4, "clicks": 2}


def world(**chosen: object) -> World:
    agreed = LearnerSettings(**chosen)  # type: ignore[arg-type]  # names and values of settings
    return World(agreed, PARTITIONS, random.Random(1))


def two_members(**chosen: object) -> World:
    """Return a group in which a has everything and b has just come to learn."""
    found = world(max_warmup_learners=None, **chosen)
    found.start("a")
    found.settle()
    found.start("b")
    found.rebalance()
    found.wants_rebalance = False
    return found


def test_user_data_does_not_change_within_an_attempt() -> None:
    found = two_members()
    machine = found.processes["b"].machine
    found.put("b", JoinStarted(9))
    said = machine.session.user_data
    task = min(machine.session.instructions.learning)
    found.put("b", LagMeasured(Map({task: 5})))
    found.put("b", JoinStarted(9))
    assert machine.session.user_data == said
    found.put("b", JoinStarted(10))
    assert decode_claim(machine.session.user_data).learning[task] == 5


def test_requests_for_what_was_learned_are_one_until_the_rebalance() -> None:
    found = two_members()
    process = found.processes["b"]
    first, *rest = sorted(process.machine.session.instructions.learning)
    found.put("b", LagMeasured(Map({first: 10_000})))
    assert process.reasons == [f"learned {first}"]
    found.put("b", LagMeasured(Map(dict.fromkeys(rest, 0))))
    assert len(process.reasons) == 1
    assert process.machine.session.state is TaskMemberState.ASKING


def test_a_lag_that_is_not_known_or_too_large_is_not_ready() -> None:
    """KAFKA-10651: a task whose end offset is unknown must not look like one that is caught up."""
    found = two_members()
    process = found.processes["b"]
    for lag in (None, 10_001, FAR):
        learning = process.machine.session.instructions.learning
        found.put("b", LagMeasured(Map(dict.fromkeys(learning, lag))))
    assert process.reasons == []


def test_what_was_learned_while_joining_is_asked_for_afterwards() -> None:
    found = two_members()
    process = found.processes["b"]
    session = process.machine.session
    task = min(session.instructions.learning)
    found.put("b", JoinStarted(50))
    found.put("b", LagMeasured(Map({task: 0})))
    assert process.reasons == []
    found.put("b", TasksAssigned(9, process.owned, encode_instructions(session.instructions)))
    assert process.reasons == [f"learned {task}"]


def test_what_the_group_knew_to_be_learned_is_not_asked_for_again() -> None:
    """Its plan may leave it as it is, where its owner is to keep it."""
    found = two_members()
    process = found.processes["b"]
    session = process.machine.session
    task = min(session.instructions.learning)
    found.put("b", LagMeasured(Map({task: 0})))
    found.put("b", JoinStarted(50))
    found.put("b", TasksAssigned(9, process.owned, encode_instructions(session.instructions)))
    assert process.reasons == [f"learned {task}"]


def test_a_member_told_to_leave_while_joining_tells_the_group_afterwards() -> None:
    found = two_members()
    process = found.processes["b"]
    session = process.machine.session
    found.put("b", JoinStarted(50))
    found.put("b", LeaveSoon())
    assert process.reasons == []
    found.put("b", TasksAssigned(9, frozenset(), encode_instructions(session.instructions)))
    assert process.reasons == ["leaving soon"]
    found.put("b", LeaveSoon())
    assert process.reasons == ["leaving soon"]
    found.put("b", JoinStarted(51))
    found.put("b", TasksAssigned(10, frozenset(), encode_instructions(Instructions())))
    assert "b" not in found.processes


def test_what_comes_late_changes_nothing() -> None:
    found = two_members()
    before = found.processes["b"].machine.session
    found.put("b", TasksAssigned(9, frozenset(), encode_instructions(Instructions())))
    assert found.processes["b"].machine.session == before


def test_a_reason_has_at_most_255_characters() -> None:
    """KIP-800: a longer one is cut off by the coordinator."""
    found = world()
    found.start("a")
    found.put("a", JoinStarted(1))
    learning = frozenset(tasks(500))
    instructions = Instructions(learning=learning, acceptable_recovery_lag=10, is_partial=True)
    found.put("a", TasksAssigned(1, frozenset(), encode_instructions(instructions)))
    found.put("a", LagMeasured(Map(dict.fromkeys(learning, 0))))
    assert [len(each) for each in found.processes["a"].reasons] == [255]


def test_state_on_disk_is_as_old_as_its_last_measurement() -> None:
    found = two_members()
    found.learn("b")
    for _ in range(2):
        found.rebalance()
    session = found.processes["a"].machine.session
    assert session.dormant
    assert set(session.dormant.values()) == {None}
    some = min(session.dormant)
    found.put("a", LagMeasured(Map({some: 7})))
    found.put("a", JoinStarted(99))
    assert decode_claim(found.processes["a"].machine.session.user_data).dormant[some] == 7
    found.put("a", StateRemoved(frozenset({some})))
    assert some not in found.processes["a"].machine.session.dormant


def test_a_member_that_lost_its_membership_claims_nothing() -> None:
    found = two_members()
    had = found.processes["a"].machine.session.active
    found.put("a", MembershipLost())
    session = found.processes["a"].machine.session
    assert (session.active, session.generation) == (frozenset(), -1)
    assert dict(session.dormant) == {t: None for t in had if t[0] != 1}


def test_what_is_no_word_of_a_leader_is_refused() -> None:
    found = world()
    found.start("a")
    found.put("a", JoinStarted(1))
    with pytest.raises(RemoteProtocolError):
        found.put("a", TasksAssigned(1, frozenset(), b""))


def test_a_member_whose_user_data_is_garbage_keeps_its_tasks() -> None:
    found = two_members()
    a = found.processes["a"]
    said = {
        "a": Subscription(
            topics=TOPOLOGY.topics, owned=a.owned, generation=2, user_data=b"\xff\x00"
        ),
        "b": Subscription(topics=TOPOLOGY.topics, user_data=None),
    }
    effects = a.leads.decide(Elected(Map(said), Map(PARTITIONS)), 0)
    assert effects.assignments is not None
    stateless = {p for p in a.owned if p.topic == "views"}
    assert effects.assignments["a"].partitions >= a.owned - stateless


def test_members_of_another_application_are_named() -> None:
    found = two_members()
    said = {"x": Subscription(topics=frozenset({"orders", "views", "clicks", "odd"}))}
    with pytest.raises(LocalProtocolError, match=r"member x does not.*: odd, prices"):
        found.processes["a"].leads.decide(Elected(Map(said), Map(PARTITIONS)), 0)


def test_topics_that_are_not_co_partitioned_are_named() -> None:
    found = two_members()
    said = {"x": Subscription(topics=TOPOLOGY.topics)}
    counts = {**PARTITIONS, "prices": 5}
    with pytest.raises(LocalProtocolError, match="sub-topology 0 are not co-partitioned"):
        found.processes["a"].leads.decide(Elected(Map(said), Map(counts)), 0)


def test_a_member_reads_all_partitions_of_its_tasks() -> None:
    found = world()
    found.start("a")
    found.start("b")
    found.settle()
    for process in found.processes.values():
        numbers = {t: {p.partition for p in process.owned if p.topic == t} for t in PARTITIONS}
        assert numbers["orders"] == numbers["prices"]
        assert process.machine.session.active == TOPOLOGY.tasks_of(process.owned)


def test_only_the_leader_keeps_deadlines() -> None:
    found = two_members(scale_down_timeout_ms=1_000)
    found.leave_soon("a")
    found.rebalance()
    states = {p.leads.session.state: p.deadline for p in found.processes.values()}
    assert states == {LeaderState.LEADING: 1_000, LeaderState.FOLLOWING: None}


def test_the_leader_asks_once_more_where_learners_exceeded_the_band() -> None:
    """b learns all that a leaves; when c comes nothing of it is given up half-way."""
    found = two_members()
    found.leave_soon("a")
    found.rebalance()
    found.start("c")
    found.rebalance()
    b = found.processes["b"]
    assert len(b.machine.session.instructions.learning) == 8
    found.settle()
    reasons = [reason for each in found.processes.values() for reason in each.reasons]
    assert reasons.count("learned tasks are granted and loads are not balanced") == 1
    check_settled(found)


def test_a_deadline_is_never_put_off() -> None:
    """The clock of the member that is leaving may be slower than the leader's."""
    found = two_members(scale_down_timeout_ms=1_000)
    found.leave_soon("a")
    found.rebalance()
    leads = next(p.leads for p in found.processes.values() if p.deadline is not None)
    said = {
        name: Subscription(
            topics=TOPOLOGY.topics,
            owned=process.owned,
            user_data=encode_claim(Claim(generation=3, leaving_ms=5 if name == "a" else None)),
        )
        for name, process in found.processes.items()
    }
    elected = Elected(Map(said), Map(PARTITIONS))
    for now in (600, 999):
        assert leads.decide(elected, now).deadline == 1_000
    effects = leads.decide(elected, 1_000)
    assert effects.deadline is None
    assert effects.plan is not None
    assert "a" not in effects.plan.transition.grants.values()


@pytest.mark.parametrize("table", [LEADER, MEMBER], ids=lambda t: t.name)
def test_every_state_is_reached_by_a_row(table: object) -> None:
    rows = table.rows  # type: ignore[attr-defined]  # of either table
    reached = {state for line in rows for state in line.to}
    assert reached == set(table.states)  # type: ignore[attr-defined]  # as above


@pytest.mark.parametrize("handover", ["until-grant", "draft"])
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_machines_settle_whatever_happened(handover: Handover, seed: int) -> None:
    """Nobody asks for a rebalance any more once everybody has learned what there was."""
    rng = random.Random(seed)
    agreed = LearnerSettings(
        handover=handover,
        rollout=rng.choice([*Rollout, Rollout.BALANCED]),
        max_warmup_learners=rng.choice([1, 2, None]),
        num_standby_replicas=rng.choice([0, 0, 1]),
        learner_partial_rebalance=rng.choice([False, True]),
        scale_down_timeout_ms=rng.choice([None, 1_000]),
    )
    found = World(agreed, PARTITIONS, rng)
    for number in range(rng.randint(2, 15)):
        happen(found, f"m{number:02}")
    found.start("x")
    found.settle()
    found.now += 10_000
    found.tick()
    found.settle()
    check_settled(found)


def happen(found: World, newcomer: str) -> None:
    rng = found.rng
    name = rng.choice([*sorted(found.processes), newcomer])
    if name == newcomer:
        found.start(newcomer)
        return
    match rng.randrange(7):
        case 0:
            found.kill(name)
        case 1:
            found.lose(name)
        case 2:
            found.leave_soon(name)
        case 3:
            found.learn(name, rng.choice([0, FAR]))
        case 4:
            found.now += rng.choice([10, 2_000])
            found.tick()
        case _:
            found.rebalance(dies=rng.choice([name, ""]))


def check_settled(found: World) -> None:
    stays = {
        n: p
        for n, p in found.processes.items()
        if found.settings.rollout < Rollout.SCALE_DOWN or p.machine.session.leaving_since is None
    }
    every = TOPOLOGY.tasks(PARTITIONS)
    active = [t for p in stays.values() for t in p.machine.session.active]
    assert sorted(active) == every
    assert not any(p.machine.session.instructions.learning for p in stays.values())
    if found.settings.rollout == Rollout.BALANCED:
        stateful = [t for t in every if t[0] != 1]
        low, high = band(len(stateful), len(stays), found.settings.percentage)
        for process in stays.values():
            own = [t for t in process.machine.session.active if t[0] != 1]
            assert low <= len(own) <= high


def test_a_crash_of_anybody_at_any_step_converges() -> None:
    """Leader, learner, owner and leaver: each dies once at each step of a scale-down."""
    for victim in ("a", "b", "c"):
        for at in range(8):
            found = world(max_warmup_learners=1)
            for name in ("a", "b", "c"):
                found.start(name)
            found.settle()
            found.leave_soon("b")
            for step in range(8):
                if step == at and victim in found.processes:
                    found.rebalance(dies=victim)
                elif found.wants_rebalance:
                    found.rebalance()
                elif "c" in found.processes:
                    found.learn("c")
                    if "a" in found.processes:
                        found.learn("a")
            found.settle()
            assert "b" not in found.processes
            check_settled(found)


def test_task_names() -> None:
    assert str(Task(2, 7)) == "2_7"
