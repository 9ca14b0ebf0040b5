"""The KIP-848 member reconciles its partitions with its assignment (L32-L34)."""

from __future__ import annotations

from uuid import UUID

import pytest

from kohort.errors import ErrorCode
from kohort.group.events import Ownership, OwnershipChanged
from kohort.group.member.consumer.machine import ConsumerMemberState
from kohort.group.member.events import CallbackDone, Subscribed, TopicsNamed
from kohort.types import TopicPartition
from tests.group.member.consumer.consumer_member import (
    DELAYS,
    FLIGHTS,
    INTERVAL_MS,
    NAMES,
    Stage,
    assignment,
    flights,
    joining,
    reconciling,
    stable,
)

S = ConsumerMemberState
ASSIGNED, REVOKED, LOST = Ownership.ASSIGNED, Ownership.REVOKED, Ownership.LOST


def test_l32_the_application_is_told_of_its_first_assignment_even_when_it_is_empty() -> None:
    stage = joining()
    stage.answer(1, assignment())
    stage.called()
    assert stage.words == [(ASSIGNED, frozenset())]
    assert stage.state() is S.STABLE


def test_l32_who_is_given_nothing_yet_is_a_member_all_the_same() -> None:
    stage = joining()
    stage.answer(1, None)
    assert stage.state() is S.STABLE
    assert stage.member.generation_id == 1


def test_l32_first_what_goes_then_what_comes() -> None:
    stage = reconciling(1, 2)
    assert stage.member.fetchable == flights(1)
    assert stage.member.assigned == flights(0, 1)
    stage.called()
    assert stage.member.assigned == flights(1, 2)
    assert stage.member.fetchable == flights(1)
    stage.called()
    assert stage.words == [(REVOKED, flights(0)), (ASSIGNED, flights(2))]
    assert stage.member.fetchable == flights(1, 2)
    assert stage.state() is S.STABLE
    (said,) = stage.heartbeat.topic_partitions or ()
    assert said.partitions == (1, 2)


def test_l32_nothing_new_is_told_as_well() -> None:
    stage = reconciling(1)
    stage.called()
    stage.called()
    assert stage.words == [(REVOKED, flights(0)), (ASSIGNED, frozenset())]


def test_l32_what_changed_is_reported_after_the_application_knows() -> None:
    stage = reconciling(1, 2)
    before = len(stage.observed)
    stage.called()
    facts = [fact for fact in stage.observed[before:] if isinstance(fact, OwnershipChanged)]
    assert [(fact.change, fact.partitions, fact.generation) for fact in facts] == [
        (REVOKED, flights(0), 2)
    ]


def test_l32_the_same_assignment_again_changes_nothing() -> None:
    stage = stable(0)
    stage.wait(INTERVAL_MS)
    stage.answer(2, assignment(0))
    assert stage.state() is S.STABLE
    assert not stage.callbacks


def test_l32_topics_without_a_name_wait_for_it_and_the_others_do_not() -> None:
    stage = joining(Stage(knows_names=False))
    stage.answer(1, assignment(0, 1))
    assert (stage.state(), stage.member.unnamed) == (S.RECONCILING, frozenset({FLIGHTS}))
    assert not stage.callbacks
    stage.tell(TopicsNamed({DELAYS: "delays"}))
    assert not stage.callbacks
    stage.tell(TopicsNamed(NAMES))
    stage.called()
    assert stage.believes == flights(0, 1)
    assert stage.state() is S.STABLE


def test_l32_what_goes_is_given_up_while_what_comes_has_no_name() -> None:
    stage = stable(0, 1)
    stage.knows_names = False
    stage.wait(INTERVAL_MS)
    stage.answer(2, assignment(3, topic=DELAYS))
    stage.called()
    stage.called()
    assert stage.words == [(REVOKED, flights(0, 1)), (ASSIGNED, frozenset())]
    assert stage.state() is S.RECONCILING
    stage.answer(2)
    stage.tell(TopicsNamed(NAMES))
    stage.called()
    assert stage.believes == {TopicPartition("delays", 3)}
    assert stage.state() is S.STABLE


def test_l32_while_it_waits_for_a_name_it_can_be_given_something_else() -> None:
    stage = stable(0)
    stage.knows_names = False
    stage.wait(INTERVAL_MS)
    stage.answer(2, assignment(3, topic=DELAYS))
    stage.called()
    stage.called()
    stage.answer(2)
    stage.wait(INTERVAL_MS)
    stage.answer(3, assignment())
    assert stage.state() is S.STABLE
    stage.wait(INTERVAL_MS)
    stage.answer(4, assignment(0))
    stage.called()
    assert stage.believes == flights(0)


def test_l32_a_topic_made_anew_is_another_one() -> None:
    """The application revokes the old topic first, as both have the same name."""
    stage = stable(0)
    anew = UUID(int=9)
    stage.wait(INTERVAL_MS)
    stage.answer(2, assignment(0, topic=anew))
    stage.tell(TopicsNamed({anew: "flights"}))
    stage.called()
    stage.called()
    assert stage.words == [(REVOKED, flights(0)), (ASSIGNED, flights(0))]


def test_l32_two_topics_of_one_name_are_not_given_twice() -> None:
    stage = stable(0)
    anew = UUID(int=9)
    stage.wait(INTERVAL_MS)
    both = assignment(0).topic_partitions + assignment(0, topic=anew).topic_partitions
    stage.answer(2, type(assignment())(topic_partitions=both))
    stage.tell(TopicsNamed({anew: "flights"}))
    assert not stage.callbacks
    assert stage.member.assigned == flights(0)


def test_l33_a_newer_target_is_dealt_with_afterwards() -> None:
    stage = reconciling(1, 2)
    stage.wait(INTERVAL_MS)
    stage.answer(3, assignment(2, 3))
    stage.called()
    assert [callback.partitions for callback in stage.callbacks] == [flights(2, 3)]
    stage.called()
    assert stage.state() is S.RECONCILING  # acknowledged, and reconciling again
    stage.answer(3)
    stage.called()
    stage.called()
    assert stage.believes == flights(2, 3)
    assert stage.words == [
        (REVOKED, flights(0)),
        (ASSIGNED, flights(2, 3)),
        (REVOKED, flights(1)),
        (ASSIGNED, frozenset()),
    ]
    assert stage.state() is S.STABLE


def test_l33_what_is_not_given_any_more_is_not_taken() -> None:
    stage = reconciling(1, 2)
    stage.wait(INTERVAL_MS)
    stage.answer(3, assignment(1))
    stage.called()
    assert [callback.partitions for callback in stage.callbacks] == [frozenset()]
    stage.called()
    assert stage.state() is S.STABLE


@pytest.mark.parametrize("calls", [0, 1])
def test_l33_a_member_that_is_fenced_meanwhile_takes_nothing_more(calls: int) -> None:
    stage = reconciling(1, 2)
    for _ in range(calls):
        stage.called()
    stage.wait(INTERVAL_MS)
    stage.answer(code=ErrorCode.FENCED_MEMBER_EPOCH)
    assert stage.state() is S.FENCED
    stage.called()
    stage.called()
    assert stage.words[-1] == (LOST, flights(1) if calls == 0 else flights(1, 2))
    assert stage.believes == set()
    assert stage.state() is S.JOINING


def test_l34_a_listener_that_raises_holds_nobody_up() -> None:
    """Unlike Java's client, where the group waits for the rebalance timeout (decision)."""
    stage = reconciling(1, 2)
    stage.called("the application's own fault")
    stage.called("again")
    assert stage.state() is S.STABLE
    assert stage.member.assigned == flights(1, 2)
    (said,) = stage.heartbeat.topic_partitions or ()
    assert said.partitions == (1, 2)


def test_l34_a_call_that_nobody_waits_for_is_passed_over() -> None:
    stage = stable(0)
    before = stage.member.session
    stage.tell(CallbackDone(999))
    assert stage.member.session == before


def test_l38_a_changed_subscription_in_the_middle_of_it_is_only_noted() -> None:
    stage = reconciling(1, 2)
    stage.tell(Subscribed(frozenset({"delays"})))
    assert stage.heartbeat.subscribed_topic_names == ("delays",)
    stage.called()
    stage.called()
    assert stage.believes == flights(1, 2)
