"""Rules are as strict as Kafka is, and no stricter; an operator remedies what a group refuses."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode, KafkaError
from kohort.group.coordinator.consumer.state.group import ConsumerGroup, ResolvedRegex
from kohort.group.coordinator.consumer.state.log_records import GROUPS
from kohort.group.coordinator.events import TopicsChanged
from kohort.simulation.checkers.consumer import legal_target
from kohort.simulation.faults.members import remedy
from kohort.simulation.groups.facts import Looked
from kohort.simulation.groups.ledger import GROUP
from kohort.simulation.groups.world import World
from kohort.simulation.runs.scenario import MemberPlan, Scenario, TopicPlan
from kohort.values import replace
from tests.group.coordinator.consumer.consumer_dialogue import ConsumerDialogue


@pytest.fixture
def world() -> World:
    made = World(Scenario(seed=1))
    for topic in ("t1", "t2"):
        made.topics.create(topic, 1)
    return made


@pytest.fixture
def dialogue(world: World) -> ConsumerDialogue:
    """One member reads both topics by an expression, and another one by the same."""
    made = ConsumerDialogue()
    made.image = world.image
    made.run(TopicsChanged(made.image))
    made.settled_by_pattern("a", "t.*")
    made.enter("b", subscribed_topic_names=None, subscribed_topic_regex="t.*")
    made.converge("a", "b")
    return made


def complaint(world: World, group: ConsumerGroup) -> str | None:
    """What S8 says of a group."""
    ledger = world.ledger
    ledger.fold = GROUPS.with_entry(ledger.fold, GROUP, group)
    return legal_target(world, Looked())


def test_s8_what_an_expression_stood_for_may_be_given_until_the_next_is_resolved(
    world: World, dialogue: ConsumerDialogue
) -> None:
    """Kafka 4.3, asked the same, calls the group stable, and its target has the old topics."""
    has, epoch = dialogue.has("a"), dialogue.member("a").epoch
    assert has
    dialogue.heartbeat("a", epoch, held=has, subscribed_topic_regex="none")
    dialogue.heartbeat("a", epoch, held={})
    group = dialogue.group
    assert (group.epoch, group.state.value) == (epoch, "Stable")
    assert (dialogue.has("a"), dialogue.target("a")) == ({}, has)
    assert complaint(world, group) is None
    dialogue.advance(10_001)
    dialogue.converge("a", "b")
    assert dialogue.has("b") == {"t1": {0}, "t2": {0}}
    assert complaint(world, dialogue.group) is None


def test_s8_what_a_resolved_expression_does_not_stand_for_may_not_be_given(
    world: World, dialogue: ConsumerDialogue
) -> None:
    group = dialogue.group
    nothing = ResolvedRegex(frozenset(), 1, 1)
    wrong = replace(group, regexes=group.regexes.set("t.*", nothing))
    assert "to which it does not subscribe" in str(complaint(world, wrong))


def test_an_operator_adds_the_assignor_that_the_group_uses() -> None:
    """C72: a coordinator that has read the log knows no other one of any member."""
    first = MemberPlan(name="first", assignors=("cooperative-sticky", "range"))
    second = MemberPlan(name="second", assignors=("range",), start_ms=60_000)
    topics = (TopicPlan(name="flights"),)
    world = World(Scenario(seed=1, members=(first, second), topics=topics))
    world.begin()
    world.engine.run(60_001)
    world.change_plan("first", assignors=("range",))  # its next life; the log has what it used
    refused = KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    remedy(world.members["second"], refused)
    assert world.plans["second"].assignors == ("cooperative-sticky", "range")
