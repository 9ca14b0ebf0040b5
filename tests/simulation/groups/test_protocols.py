"""Each protocol is simulated, and what is special about it happens."""

from __future__ import annotations

import pytest

from kohort.simulation.checkers import CHECKERS
from kohort.simulation.faults.members import GARBAGE
from kohort.simulation.groups.protocols import CAMPAIGNS, PROTOCOLS
from kohort.simulation.groups.world import World
from kohort.simulation.runs.drawing import draw
from kohort.simulation.runs.running import Outcome, Owners, run, run_world
from kohort.simulation.runs.scenario import Fault, MemberPlan, Scenario, TopicPlan
from kohort.types import TopicPartition
from kohort.values import replace

TOPIC = TopicPlan(name="flights", partitions=4)


def scenario(protocol: str, *faults: Fault, **changes: object) -> Scenario:
    members = tuple(
        MemberPlan(name=f"member-{number}", assignors=(), max_poll_interval_ms=20_000)
        for number in (1, 2)
    )
    made = Scenario(
        seed=1, protocol=protocol, minutes=4, members=members, topics=(TOPIC,), faults=faults
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # the keys are fields of Scenario


def ended_well(each: Scenario) -> Outcome:
    outcome = run(each)
    assert outcome.is_ok, outcome.complaint
    return outcome


@pytest.mark.parametrize("protocol", CAMPAIGNS)
def test_every_protocol_survives_a_drawn_seed(protocol: str) -> None:
    assert ended_well(draw(11, protocol)).rebalances > 0


def bounce(at_s: int, member: int, protocol: str) -> Fault:
    name = f"member-{member}"
    at_ms, down_ms = at_s * 1_000, 2_000
    return Fault(kind="migrate", at_ms=at_ms, target=name, lasts_ms=down_ms, detail=protocol)


THERE = (bounce(30, 1, "consumer"), bounce(60, 2, "consumer"))
BACK = (bounce(120, 1, "classic"), bounce(150, 2, "classic"))


def migrating(policy: str) -> Scenario:
    plans = scenario("migration").members
    members = tuple(replace(each, protocol="classic", assignors=("range",)) for each in plans)
    return scenario("migration", *THERE, *BACK, members=members, migration_policy=policy)


def test_a_group_goes_there_and_back() -> None:
    """K40, K47."""
    notes = ended_well(migrating("bidirectional")).notes
    assert notes["group became consumer"] == notes["group became classic"] == 1


def test_a_bounce_that_the_policy_forbids_is_taken_back() -> None:
    """K40."""
    notes = ended_well(migrating("disabled")).notes
    assert notes["migration refused"] > 0
    assert notes["group became consumer"] == 0


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_of_a_member_is_no_assignment(kind: str) -> None:
    """K61: the coordinator's own assignor takes over."""
    faults = [
        Fault(kind="assignor_garbage", at_ms=30_000, target=name, detail=kind)
        for name in ("member-1", "member-2")
    ]
    grows = Fault(kind="grow", at_ms=40_000, target="flights", lasts_ms=1_000, detail="1")
    notes = ended_well(scenario("client-side", *faults, grows)).notes
    assert notes["assignor gave garbage"] > 0
    assert notes["AssignorFellBack"] > 0


def test_topics_that_come_are_owned_by_who_has_an_expression() -> None:
    """K50."""
    comes = Fault(kind="topic_comes", at_ms=60_000, detail="flights-east")
    plans = scenario("consumer").members
    members = tuple(replace(each, pattern="flights.*") for each in plans)
    world = World(scenario("consumer", comes, members=members), checkers=CHECKERS)
    owners = Owners(world)
    outcome = run_world(world)
    assert outcome.is_ok, outcome.complaint
    owned = owners.timeline().partitions
    assert {TopicPartition("flights-east", number) for number in (0, 1)} <= set(owned)


def test_members_of_the_draft_have_no_instance_and_no_slow_listener() -> None:
    """D13: a listener slower than the session is thrown out each time."""
    plans = [plan for seed in range(30) for plan in draw(seed, "draft").members]
    assert not any(plan.instance for plan in plans)
    assert all(plan.listener_ms * 4 <= plan.session_timeout_ms for plan in plans)


def test_a_migration_is_no_protocol_of_a_member() -> None:
    assert set(CAMPAIGNS) - set(PROTOCOLS) == {"migration"}
