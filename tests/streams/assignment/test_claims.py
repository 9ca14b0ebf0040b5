"""What members claim: contradictions between them, and claims that mean nothing."""

from __future__ import annotations

import pytest

from kohort.errors import ConfigError
from kohort.streams.assignment.plan import situation
from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.assignment.situation import Leaving
from kohort.streams.assignment.tasks import SubTopology, Task, Topology
from tests.streams.group import FAR, Group, tasks

T1, T2, T3, T4 = tasks(4)


def group(stateless: tuple[int, ...] = ()) -> Group:
    return Group(tasks(4), LearnerSettings(max_warmup_learners=None), stateless)


@pytest.mark.parametrize("stateless", [(), (0,)])
def test_nobody_gets_what_two_members_claim_since_the_same_generation(
    stateless: tuple[int, ...],
) -> None:
    found = group(stateless)
    found.add("a", [T1, T2], generation=5)
    found.add("b", [T2, T3], generation=5)
    plan = found.rebalance()
    assert T2 not in plan.transition.grants
    assert T2 not in plan.transition.learners
    plan = found.rebalance()
    assert T2 in plan.transition.grants


@pytest.mark.parametrize("stateless", [(), (0,)])
def test_of_two_claims_the_later_one_holds(stateless: tuple[int, ...]) -> None:
    found = group(stateless)
    found.add("a", [T1, T2], generation=7)
    found.add("b", [T2, T3, T4], generation=6)
    assert found.rebalance().transition.grants[T2] == "a"
    assert found.members["b"].active == {T3, T4}


def test_whoever_learns_a_contested_task_goes_on() -> None:
    found = group()
    found.add("a", [T1, T2, T3, T4], generation=5)
    found.add("b", [T2], generation=5)
    found.add("c", generation=5).learning = {T2: 0}
    plan = found.rebalance()
    assert T2 not in plan.transition.grants
    assert plan.transition.learners[T2] == "c"
    assert found.rebalance().transition.grants[T2] == "c"


def test_of_two_learners_the_nearer_one_goes_on_unless_it_is_leaving() -> None:
    for leaving, left in ((False, "c"), (True, "b")):
        found = group()
        found.add("a", tasks(4))
        found.add("b", generation=0).learning = {T4: FAR}
        found.add("c", generation=0).learning = {T4: FAR - 1}
        found.add("d", generation=0).dormant = {T4: FAR - 2}
        if leaving:
            found.members["c"].leaving_ms = 0
        assert found.rebalance().transition.learners[T4] == left


def test_an_owner_that_says_it_learns_its_own_tasks_is_their_owner() -> None:
    found = group()
    found.add("a", tasks(4)).learning = dict.fromkeys(tasks(4), FAR)
    found.add("b")
    plan = found.rebalance()
    assert set(plan.transition.grants.values()) == {"a"}
    assert set(plan.transition.learners.values()) == {"b"}


@pytest.mark.parametrize(("leaving_ms", "known"), [(1_000, ""), (10, "b")])
def test_a_time_is_over_if_the_member_or_the_leader_says_so(leaving_ms: int, known: str) -> None:
    """Clocks may differ a little, and a new leader has only the claims."""
    agreed = LearnerSettings(scale_down_timeout_ms=1_000)
    found = Group(tasks(4), agreed)
    found.add("a", tasks(2))
    found.add("b", tasks(4)[2:]).leaving_ms = leaving_ms
    joined = {name: member.joined() for name, member in found.members.items()}
    overdue = frozenset({known, "a"})
    leaving = situation(tasks(4), frozenset(), joined, agreed, overdue=overdue).leaving
    assert leaving == Leaving(frozenset({"b"}), frozenset({"b"}))


def test_claims_to_tasks_that_are_no_more_are_passed_over() -> None:
    """A topic was made anew with fewer partitions, while one of its tasks was learned."""
    gone = Task(0, 9)
    found = group()
    found.add("a", [*tasks(4), gone])
    member = found.add("b", generation=0)
    member.learning, member.standbys = {gone: FAR}, {Task(7, 0): 0}
    plan = found.rebalance()
    assert gone not in {**plan.transition.grants, **plan.transition.learners}
    assert gone not in found.members["a"].active


def test_a_topic_is_read_by_one_sub_topology() -> None:
    with pytest.raises(ConfigError, match="0 and 1 both read orders"):
        Topology([SubTopology(("orders",)), SubTopology(("prices", "orders"))])
    with pytest.raises(ConfigError, match="sub-topology 0 reads no topic"):
        Topology([SubTopology(())])


def test_a_sub_topology_has_tasks_when_all_its_topics_exist() -> None:
    topology = Topology([SubTopology(("orders", "prices")), SubTopology(("views",))])
    assert topology.tasks({"orders": 2, "views": 1}) == [Task(1, 0)]
    assert topology.tasks({"orders": 2, "prices": 2}) == tasks(2)
