"""The rules of the draft of KIP-429, by the numbers of docs/internals/streams-rules.md."""

from __future__ import annotations

import random

import pytest
from immutables import Map

from kohort.errors import ConfigError
from kohort.group.subscription import PROTOCOL_TYPE, decode_assignment, encode_assignment
from kohort.streams.assignment.member import JoinStarted, LagMeasured
from kohort.streams.assignment.metadata import decode_claim, decode_instructions
from kohort.streams.assignment.plan import ASSIGNOR
from kohort.streams.assignment.refiner import refine
from kohort.streams.assignment.settings import Handover, LearnerSettings, Rollout
from kohort.streams.assignment.situation import (
    Current,
    Leaving,
    Readiness,
    Target,
)
from kohort.streams.assignment.tasks import Task
from tests.streams.group import FAR, Group, exact_group, tasks
from tests.streams.machines import World

T1, T2, T3, T4, T5, T6 = tasks(6)
PARTITIONS = {"orders": 6, "prices": 6, "views": 4, "clicks": 2}


def world(**chosen: object) -> World:
    agreed = {"max_warmup_learners": None, **chosen}
    return World(LearnerSettings(**agreed), PARTITIONS, random.Random(3))  # type: ignore[arg-type]  # as above


def started(*names: str, **chosen: object) -> World:
    """Return a group in which the first member had everything before the others came."""
    found = world(**chosen)
    found.start(names[0])
    found.settle()
    for name in names[1:]:
        found.start(name)
    return found


def test_1_in_the_draft_a_member_gives_up_at_join_exactly_what_is_being_learned() -> None:
    found = started("a", "b", handover="draft")
    found.rebalance()
    session = found.processes["a"].machine.session
    being_learned = session.instructions.being_learned
    assert (
        being_learned == found.processes["b"].machine.session.instructions.learning != frozenset()
    )
    effects = found.put("a", JoinStarted(99))
    assert effects.revoke == being_learned
    assert effects.session.active == session.active - being_learned
    assert decode_claim(effects.session.user_data).revoked == being_learned
    again = found.put("a", JoinStarted(100))  # the first attempt failed
    assert again.revoke == frozenset()
    assert decode_claim(again.session.user_data).revoked == being_learned


def test_1_an_owner_processes_until_the_grant_where_the_draft_is_not_asked_for() -> None:
    found = started("a", "b")
    found.rebalance()
    before = found.processes["a"].machine.session.active
    for attempt in (98, 99):
        assert found.put("a", JoinStarted(attempt)).revoke == frozenset()
    assert found.processes["a"].machine.session.active == before


def test_1_an_owner_gives_a_task_up_in_one_rebalance_and_the_next_one_grants_it() -> None:
    found = exact_group(2)
    found.add("a", [T1, T2])
    found.add("b")
    found.rebalance()
    found.learn()
    found.rebalance()
    assert (found.members["a"].active, found.members["b"].active) == ({T1}, set())
    assert found.members["b"].learning == {T2: 0}
    found.rebalance()
    assert (found.members["a"].active, found.members["b"].active) == ({T1}, {T2})


def test_2_a_newcomer_is_a_member_without_a_generation() -> None:
    """Known from the member itself (KIP-792), whoever led before."""
    found = exact_group(rollout=Rollout.NEWCOMERS)
    found.add("a", tasks(6))
    found.add("old", generation=0)
    found.rebalance()
    assert found.members["old"].learning == {}
    found.add("new")
    found.rebalance()
    assert (found.members["old"].learning, len(found.members["new"].learning)) == ({}, 2)


def test_2_who_is_leaving_and_for_how_long_is_in_the_claims() -> None:
    found = started("a", "b")
    found.leave_soon("a")
    found.now += 700
    found.put("a", JoinStarted(5))
    assert decode_claim(found.processes["a"].machine.session.user_data).leaving_ms == 700
    found.put("b", JoinStarted(5))
    assert decode_claim(found.processes["b"].machine.session.user_data).leaving_ms is None


def test_3_first_active_tasks_then_learners_then_standbys() -> None:
    """A learner never displaces an active task, nor a standby one of the two."""
    found = exact_group(num_standby_replicas=2)
    found.add("a", tasks(6))
    for name in ("b", "c"):
        found.add(name)
    plan = found.rebalance()
    assert set(plan.transition.grants) == set(tasks(6))
    for task, learner in plan.transition.learners.items():
        assert learner != plan.transition.grants[task]
    for task, members in plan.standbys.items():
        assert not {plan.transition.grants[task], plan.transition.learners.get(task)} & {*members}


def at_once(
    current: Current, lags: dict[str, int | None], leaving: Leaving | None = None
) -> str | None:
    """Return who gets T1, which is meant for `goal`."""
    target, readiness = Target({T1: "goal"}), Readiness(lags={T1: lags})
    return refine(target, current, readiness, leaving or Leaving(), None).grants.get(T1)


def test_4_an_active_task_goes_to_the_first_of_five() -> None:
    """A ready learner, the previous owner, the learner, who has its state, who has room."""
    learner, previous = {T1: "learner"}, {T1: "previous"}
    standby: dict[str, int | None] = {"standby": FAR + 1}
    both = Current(learner=learner, previous=previous)
    assert at_once(both, {"learner": 0, **standby}) == "learner"
    assert at_once(both, {"learner": FAR, **standby}) == "previous"
    assert at_once(Current(learner=learner), {"learner": FAR, **standby}) == "learner"
    assert at_once(Current(), standby) == "standby"
    assert at_once(Current(), {}) == "goal"


def test_4_a_standby_that_is_ready_comes_before_a_learner_that_is_not() -> None:
    """KIP-441: caught-up members first; a standby becomes a ready learner at once."""
    current = Current(learner={T1: "learner"})
    assert at_once(current, {"learner": FAR, "standby": 10_000}) == "standby"
    assert at_once(current, {"learner": FAR, "near": 8, "far": 9}) == "near"


def test_4_a_leaving_member_gets_nothing_back_but_what_it_gave_up_to_join() -> None:
    leaving = Leaving(frozenset({"standby", "learner", "previous"}))
    assert at_once(Current(), {"standby": 0}, leaving) == "goal"
    assert at_once(Current(learner={T1: "learner"}), {"learner": 0}, leaving) == "goal"
    assert at_once(Current(previous={T1: "previous"}), {}, leaving) == "previous"
    overdue = Leaving(leaving.members, leaving.members)
    assert at_once(Current(previous={T1: "previous"}), {}, overdue) == "goal"


def test_5_a_task_with_a_live_owner_goes_only_to_who_is_ready() -> None:
    target, current = Target({T1: "b"}), Current(owner={T1: "a"}, learner={T1: "b"})
    for lag in (None, 10_001, FAR):
        found = refine(target, current, Readiness(lags={T1: {"b": lag}}), Leaving(), None)
        assert (found.grants, found.learners) == ({T1: "a"}, {T1: "b"})
    ready = refine(target, current, Readiness(lags={T1: {"b": 10_000}}), Leaving(), None)
    assert (ready.grants, ready.learners) == ({}, {T1: "b"})


def test_5_a_task_without_an_owner_goes_at_once() -> None:
    found = exact_group()
    found.add("a", tasks(3))
    found.add("b")
    found.rebalance()
    assert set(found.members["b"].active) == {T4, T5, T6}


def test_6_existing_learners_stay() -> None:
    """Even where later newcomers leave them above the band: nothing is given up half-way."""
    found = exact_group()
    found.add("a", tasks(6))
    found.add("b")
    found.rebalance()
    learning = set(found.members["b"].learning)
    assert len(learning) == 3
    for name in "cdef":
        found.add(name)
    found.rebalance()
    assert set(found.members["b"].learning) == learning


def test_7_new_learners_come_from_the_heaviest() -> None:
    found = exact_group(6)
    found.add("a", [T1, T2, T3])
    found.add("b", [T4, T5])
    found.add("c", [T6])
    found.add("d")
    found.rebalance()
    assert found.members["d"].learning.keys() == {T3}


def test_7_with_a_budget_the_heaviest_come_first_and_leaving_members_before_them() -> None:
    found = exact_group(8, max_warmup_learners=1)
    found.add("a", tasks(6))
    found.add("b", tasks(8)[6:])
    found.add("c")
    plan = found.rebalance()
    assert [plan.transition.grants[t] for t in plan.transition.learners] == ["a"]
    leaving = exact_group(8, max_warmup_learners=1)
    leaving.add("a", tasks(6))
    leaving.add("b", tasks(8)[6:]).leaving_ms = 0
    leaving.add("c")
    plan = leaving.rebalance()
    assert [plan.transition.grants[t] for t in plan.transition.learners] == ["b"]


def test_7_those_that_learn_already_count_against_the_budget() -> None:
    found = exact_group(8, max_warmup_learners=2)
    found.add("a", tasks(8))
    found.add("b")
    first = found.rebalance().transition.learners
    assert len(first) == 2
    found.add("c")
    assert found.rebalance().transition.learners == first


def test_7_newcomers_learn_first_what_they_have_a_standby_of() -> None:
    found = exact_group(6)
    found.add("a", tasks(6))
    found.add("b").standbys = {T2: FAR, T5: FAR}
    found.add("c").dormant = {T1: 0}
    plan = found.lead()
    assert {t for t, m in plan.target.active.items() if m == "b"} >= {T2, T5}
    assert plan.target.active[T1] == "c"


def test_9_every_task_of_a_leaving_member_gets_a_learner_and_it_ends_without_tasks() -> None:
    found = started("a", "b", "c")
    found.settle()
    found.leave_soon("b")
    found.rebalance()
    plan = found.plans[-1].plan
    assert plan is not None
    stateful = {t for t in found.processes["b"].machine.session.active if t[0] != 1}
    assert stateful
    assert stateful <= plan.transition.learners.keys()
    assert "b" not in plan.transition.learners.values()
    assert "b" not in plan.target.active.values()
    found.settle()
    assert sorted(found.processes) == ["a", "c"]


def test_10_by_default_a_leaving_member_waits_for_its_learners() -> None:
    assert LearnerSettings().scale_down_timeout_ms is None
    found = started("a", "b")
    found.leave_soon("a")
    found.rebalance()
    found.wants_rebalance = False
    assert not asks_at(10**9, found)


def asks_at(now: int, found: World) -> bool:
    """Return whether somebody asks for a rebalance at a time."""
    found.now = now
    found.tick()
    return found.wants_rebalance


@pytest.mark.parametrize("handover", ["until-grant", "draft"])
@pytest.mark.parametrize("takes_over", [False, True])
def test_10_after_the_timeout_the_leader_ends_it_and_learners_take_over_as_they_are(
    handover: Handover, takes_over: bool
) -> None:
    """The leader asks, because a static member sends no leave; another leader knows as much."""
    found = started("a", "b", handover=handover, scale_down_timeout_ms=5_000)
    found.rebalance()
    found.leave_soon("a")
    found.now = 1_000
    found.rebalance()
    if takes_over:
        found.now = 3_000
        for process in found.processes.values():
            process.leads.session = type(process.leads.session)()
        found.rebalance()
    found.wants_rebalance = False
    deadlines = [p.deadline for p in found.processes.values() if p.deadline is not None]
    assert deadlines == [5_000]
    assert not asks_at(4_999, found)
    assert asks_at(5_000, found)
    reasons = [reason for p in found.processes.values() for reason in p.reasons]
    assert reasons.count("scale_down_timeout_ms (5000) is over for a") == 1
    found.rebalance()
    if "a" in found.processes:  # in the mode of the draft it gave up only what was being learned
        found.rebalance()
    found.rebalance()
    assert [*found.processes] == ["b"]
    assert len(found.processes["b"].machine.session.active) == 12


def test_11_a_learner_asks_for_each_task_or_once_for_all() -> None:
    for partial in (True, False):
        found = started("a", "b", learner_partial_rebalance=partial)
        found.rebalance()
        process = found.processes["b"]
        session = process.machine.session
        assert len(session.instructions.learning) > 1
        first, *rest = sorted(session.instructions.learning)
        lags = dict.fromkeys(session.instructions.learning, FAR)
        process.reasons.clear()
        learn(found, {**lags, first: 0})
        assert process.reasons == ([f"learned {first}"] if partial else [])
        learn(found, dict.fromkeys([first, *rest], 0))
        assert len(process.reasons) == 1


def learn(found: World, lags: dict[Task, int]) -> None:
    found.put("b", LagMeasured(Map(lags)))


def test_11_before_the_third_version_a_learner_asks_once_for_all() -> None:
    for rollout in Rollout:
        assert LearnerSettings(rollout=rollout).is_partial is (rollout >= Rollout.EAGER)


def learners_of(rollout: Rollout, *, leaving: bool) -> dict[str, int]:
    """Return how many tasks each member learns when d joins a, b and c, of which c may leave."""
    found = exact_group(12, rollout=rollout)
    found.add("a", tasks(12)[:7])
    found.add("b", tasks(12)[7:8], generation=0)
    found.add("c", tasks(12)[8:]).leaving_ms = 0 if leaving else None
    found.add("d")
    found.rebalance()
    return {name: len(member.learning) for name, member in found.members.items()}


def test_12_each_version_does_more_than_the_one_before() -> None:
    """1: newcomers learn. 2: all learn what a leaving member has. 4: all are balanced."""
    assert learners_of(Rollout.NEWCOMERS, leaving=True) == {"a": 0, "b": 0, "c": 0, "d": 3}
    assert learners_of(Rollout.SCALE_DOWN, leaving=False) == {"a": 0, "b": 0, "c": 0, "d": 3}
    assert learners_of(Rollout.SCALE_DOWN, leaving=True) == {"a": 0, "b": 3, "c": 0, "d": 4}
    assert learners_of(Rollout.EAGER, leaving=True) == {"a": 0, "b": 3, "c": 0, "d": 4}
    assert learners_of(Rollout.BALANCED, leaving=False) == {"a": 0, "b": 2, "c": 0, "d": 3}


def test_12_the_percentage_is_a_band_around_the_mean() -> None:
    """Within it nothing moves; beyond it no more than brings a member back to its border."""
    for percentage, moved in ((0.0, 20), (0.2, 16), (0.5, 10), (1.0, 0)):
        found = exact_group(100, stream_imbalance_percentage=percentage)
        for number in range(4):
            found.add(f"m{number}", tasks(100)[25 * number : 25 * number + 25])
        found.add("new")
        found.rebalance()
        assert len(found.members["new"].learning) == moved


@pytest.mark.parametrize(
    "wrong",
    [
        {"handover": "eager"},
        {"rollout": 5},
        {"acceptable_recovery_lag": -1},
        {"max_warmup_learners": 0},
        {"num_standby_replicas": -1},
        {"stream_imbalance_percentage": 1.1},
        {"scale_down_timeout_ms": -1},
        {"rack_aware_assignment_tags": ("a", "b", "c", "d", "e", "f")},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_12_settings_out_of_their_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        LearnerSettings(**wrong)  # type: ignore[arg-type]  # that is the point


def test_13_the_group_is_one_of_consumers_with_an_assignor_of_its_own() -> None:
    """No second protocol type, so no bounce from one to the other (INCONSISTENT_GROUP_PROTOCOL)."""
    assert (PROTOCOL_TYPE, ASSIGNOR) == ("consumer", "kohort-learner")
    found = started("a", "b")
    found.rebalance()
    given = found.plans[-1].assignments
    assert given is not None
    data = encode_assignment(given["a"].partitions, given["a"].user_data)
    partitions, user_data = decode_assignment(data)
    assert partitions == found.processes["a"].owned
    assert decode_instructions(user_data or b"").being_learned


def test_14_a_stateless_task_moves_without_a_learner_revoked_first() -> None:
    found = exact_group(4, stateless=(0,))
    found.add("a", tasks(4))
    found.add("b")
    plan = found.rebalance()
    assert (found.members["a"].active, found.members["b"].active) == ({T1, T2}, set())
    assert plan.transition.learners == {}
    assert plan.standbys == {}
    found.rebalance()
    assert found.loads() == [2, 2]


def test_14_stateful_and_stateless_tasks_are_balanced_apart() -> None:
    found = Group(
        [*tasks(5), *tasks(5, sub_topology=1)],
        LearnerSettings(stream_imbalance_percentage=0),
        stateless=[1],
    )
    found.add("a")
    found.add("b")
    found.rebalance()
    loads = {
        n: [sum(t[0] == part for t in m.active) for part in (0, 1)]
        for n, m in found.members.items()
    }
    assert sorted(map(tuple, loads.values())) == [(2, 3), (3, 2)]


def test_15_a_learner_whose_owner_is_gone_takes_over_at_once_whoever_leads() -> None:
    found = exact_group()
    found.add("a", tasks(6))
    found.add("b")
    found.rebalance()
    learning = set(found.members["b"].learning)
    assert learning
    del found.members["a"]
    found.rebalance()
    assert found.members["b"].active >= learning


def test_16_a_new_leader_knows_newcomers_from_members_by_kip_792() -> None:
    """The draft accepts 4, 1 and 0 tasks where the leader died before: it kept the list itself."""
    for known, loads in ((frozenset[str](), [0, 1, 4]), (None, [1, 2, 2])):
        found = exact_group(5, rollout=Rollout.NEWCOMERS)
        found.add("b", tasks(5)[1:])
        found.add("c")
        found.add("d")
        if known is None:
            found.rebalance()
        else:
            found.rebalance(newcomers=known)
        found.learn()
        for _ in range(2):
            found.rebalance(newcomers=frozenset())
        assert found.loads() == loads


def test_17_from_ground_tasks_are_assigned_without_learners() -> None:
    found = exact_group()
    for name in "abc":
        found.add(name)
    plan = found.rebalance()
    assert found.loads() == [2, 2, 2]
    assert plan.transition.learners == {}
    found.add("d")
    found.rebalance()
    assert len(found.members["d"].learning) == 1


def test_18_hosts_are_swapped_by_doubling_learning_and_leaving() -> None:
    found = started("a", "b")
    found.settle()
    before = found.active()
    found.start("c")
    found.start("d")
    for name in before:
        found.leave_soon(name)
    found.rebalance()
    stateful = {n: {t for t in each if t[0] != 1} for n, each in before.items()}
    for name, own in stateful.items():
        assert own <= found.processes[name].machine.session.active
    found.settle()
    assert sorted(found.processes) == ["c", "d"]
    assert sum(map(len, found.active().values())) == 12


def test_19_user_data_has_a_limit_of_its_own() -> None:
    """The sum over 1,000 members is in test_metadata.py."""
    found = started("a", "b")
    found.rebalance()
    said = found.processes["b"].machine.session.user_data
    assert len(said) < 40
