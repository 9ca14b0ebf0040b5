"""Groups too large for an exact solver: a search finds no chain of moves that helps."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping

import pytest

from kohort.group.assignors import ClusterView, Subscription
from kohort.group.assignors.problem import build, by_member, solve
from kohort.types import TopicPartition
from kohort.values import replace
from tests.group.assignors.cases import Case, large_case, score
from tests.group.assignors.exact import by_squares, optimum


def solved(case: Case) -> dict[str, list[TopicPartition]]:
    problem = build(case.cluster, case.subscriptions)
    return by_member(problem, solve(problem))


def can_be_more_even(case: Case, assignment: Mapping[str, Iterable[TopicPartition]]) -> bool:
    """Whether a chain of moves leads from a member to one with at least two fewer partitions.

    Without such a chain, no assignment is more even (Harvey, Ladner, Lovasz and Tamir).
    """
    has = {member: list(owned) for member, owned in assignment.items()}
    takers: defaultdict[str, list[str]] = defaultdict(list)
    for member, entry in case.subscriptions.items():
        for topic in entry.topics:
            takers[topic].append(member)
    topics_of = {member: {each.topic for each in owned} for member, owned in has.items()}
    for load in {len(owned) for owned in has.values()}:
        reached = {member for member, owned in has.items() if len(owned) >= load}
        todo, seen = list(reached), set[str]()
        while todo:
            new_topics = topics_of[todo.pop()] - seen
            seen |= new_topics
            new = {member for topic in new_topics for member in takers[topic]} - reached
            reached |= new
            todo += new
        if any(len(has[member]) < load - 1 for member in reached):
            return True
    return False


@pytest.mark.parametrize("seed", range(40))
def test_a11_no_chain_of_moves_makes_a_large_group_more_even(seed: int) -> None:
    rng = random.Random(seed)
    case = large_case(rng, rng.randint(20, 120), rng.randint(2, 40), 3000)
    assignment = solved(case)
    score(case, assignment)
    assert not can_be_more_even(case, assignment)


def test_the_search_finds_a_chain_where_there_is_one() -> None:
    """m0 has two and can give one only to m1, which can pass one of its own on to m2."""
    wanted = {"m0": {"a"}, "m1": {"a", "b"}, "m2": {"b"}}
    case = Case(
        ClusterView({"a": 2, "b": 1}),
        {member: Subscription(topics=frozenset(topics)) for member, topics in wanted.items()},
    )
    a0, a1, b0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
    assert can_be_more_even(case, {"m0": [a0, a1], "m1": [b0], "m2": []})
    assert not can_be_more_even(case, {"m0": [a0], "m1": [a1], "m2": [b0]})


@pytest.mark.parametrize("seed", range(12))
def test_a13_the_fewest_partitions_of_a_middling_group_move(seed: int) -> None:
    rng = random.Random(seed)
    case = large_case(rng, rng.randint(8, 16), rng.randint(2, 12), 150)
    ours = score(case, solved(case))
    assert ours == optimum(case, by_squares(case), seats=max(ours.loads))


@pytest.mark.parametrize("seed", range(10))
def test_a13_equal_subscriptions_move_exactly_what_they_must(seed: int) -> None:
    """The exact number: unowned partitions, and those beyond the share of the largest owners."""
    rng = random.Random(seed)
    case = large_case(rng, rng.randint(2, 60), rng.randint(1, 20), 2000)
    everything = frozenset(case.cluster.partitions)
    for member, entry in case.subscriptions.items():
        case.subscriptions[member] = replace(entry, topics=everything)
    count = len(case.partitions)
    each, more = divmod(count, len(case.subscriptions))
    owned = sorted((len(entry.owned) for entry in case.subscriptions.values()), reverse=True)
    kept = sum(min(have, each + (rank < more)) for rank, have in enumerate(owned))
    result = score(case, solved(case))
    assert max(result.loads) - min(result.loads) <= 1
    assert result.moved == count - kept


def test_parts_within_parts_are_found() -> None:
    """A staircase: each topic can also go to the member above, whose own topic is larger."""
    members = 60
    sizes = {f"t{n:02}": n * n + 1 for n in range(members)}
    subscriptions = {
        f"m{n:02}": Subscription(topics=frozenset({f"t{n:02}", f"t{max(0, n - 1):02}"}))
        for n in range(members)
    }
    case = Case(ClusterView(sizes), subscriptions)
    assignment = solved(case)
    score(case, assignment)
    assert not can_be_more_even(case, assignment)
