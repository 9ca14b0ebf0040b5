"""Rule 8 of docs/internals/streams-rules.md: where standbys are."""

from __future__ import annotations

import pytest

from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.assignment.situation import (
    Current,
    Readiness,
    Situation,
    Target,
    Transition,
)
from kohort.streams.assignment.standbys import place_standbys
from kohort.streams.assignment.tasks import Task
from tests.streams.group import FAR, exact_group, tasks

T1, T2, T3 = tasks(3)


def test_8_a_standby_is_where_the_task_is_not_and_first_with_its_former_owner() -> None:
    found = exact_group(3, num_standby_replicas=1)
    found.add("a", [T1, T2])
    found.add("b").standbys = {T2: FAR}
    found.add("c", [T3]).standbys = {T1: 0}
    plan = found.rebalance()
    assert plan.transition.learners == {T2: "b"}
    assert T2 not in plan.standbys  # its standby was made the learner and still counts as one
    found.learn()
    found.rebalance()
    plan = found.rebalance()
    assert plan.transition.grants[T2] == "b"
    assert plan.standbys[T2] == ("a",)
    assert plan.standbys[T1] == ("c",)


def test_8_a_task_that_is_learned_keeps_its_standby() -> None:
    found = exact_group(4, num_standby_replicas=1)
    found.add("a", [T1, T2])
    found.add("b", generation=0)
    found.add("c", [T3])
    found.add("d", tasks(4)[3:])
    plan = found.rebalance()
    ((task, learner),) = plan.transition.learners.items()
    assert (plan.transition.grants[task], learner) == ("a", "b")
    assert [len(plan.standbys[each]) for each in tasks(4)] == [1, 1, 1, 1]


@pytest.mark.parametrize("is_draft", [False, True])
def test_8_the_former_owner_comes_before_a_member_that_has_as_few(is_draft: bool) -> None:
    lags: dict[Task, dict[str, int | None]] = {} if is_draft else {T2: {"z": 0}}
    found = Situation(
        tasks=(T1, T2),
        members=("b", "c", "z"),
        current=Current(previous={T2: "z"} if is_draft else {}),
        readiness=Readiness(lags=lags),
    )
    active = {T1: "z", T2: "b"}
    agreed = LearnerSettings(num_standby_replicas=1)
    standbys = place_standbys(found, Target(active), Transition(active, {}), agreed)
    assert standbys == {T1: ("b",), T2: ("z",)}


@pytest.mark.parametrize(("replicas", "members"), [(1, 3), (2, 3), (2, 4), (5, 3)])
def test_8_num_standby_replicas_is_reached_as_far_as_there_are_members(
    replicas: int, members: int
) -> None:
    found = exact_group(num_standby_replicas=replicas)
    for number in range(members):
        found.add(f"m{number}")
    found.settle()
    assert found.plan is not None
    copies = {len(each) for each in found.plan.standbys.values()}
    assert copies == {min(replicas, members - 1)}


def test_8_replicas_differ_in_their_tags() -> None:
    """KIP-708: three replicas in three zones, as far as there are zones."""
    found = exact_group(12, num_standby_replicas=2, rack_aware_assignment_tags=("zone",))
    for number in range(6):
        found.add(f"m{number}").tags = {"zone": f"z{number // 2}"}
    found.settle()
    plan = found.plan
    assert plan is not None
    for task, members in plan.standbys.items():
        where = [found.members[m].tags["zone"] for m in (plan.transition.grants[task], *members)]
        assert sorted(where) == ["z0", "z1", "z2"]


def test_8_a_standby_moves_where_its_tags_differ_more() -> None:
    found = exact_group(4, num_standby_replicas=1, rack_aware_assignment_tags=("zone",))
    for name, active, standbys, zone in (
        ("a", tasks(4)[:2], tasks(4)[2:], "z0"),
        ("b", tasks(4)[2:], tasks(4)[:2], "z0"),
    ):
        member = found.add(name, active)
        member.standbys, member.tags = dict.fromkeys(standbys, 0), {"zone": zone}
    assert set(found.lead().standbys.values()) == {("a",), ("b",)}
    found.add("c").tags = {"zone": "z1"}
    plan = found.lead()
    learned = plan.transition.learners.keys()
    assert {m for t, m in plan.standbys.items() if t not in learned} == {("c",)}
