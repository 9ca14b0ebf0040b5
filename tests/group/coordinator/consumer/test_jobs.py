"""Target assignments as jobs: only some requests wait for them (K11)."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer.decision import TargetJob
from kohort.group.coordinator.events import JobDone
from kohort.group.coordinator.jobs import NewTarget
from tests.group.coordinator.consumer.consumer_dialogue import ConsumerDialogue

FULL = {"held": {}, "rebalance_timeout_ms": 30_000, "subscribed_topic_names": ("t",)}


def held_back(**settings: int) -> tuple[ConsumerDialogue, int, TargetJob]:
    """Return a group whose first member waits for its target."""
    group = ConsumerDialogue(**settings)
    group.topics(t=4)
    group.holds_jobs = True
    token = group.beat_token("a", 0, **FULL)
    (job,) = group.held_back
    assert isinstance(job, TargetJob)
    group.held_back.clear()
    return group, token, job


def test_k11_who_started_it_waits_and_nobody_else_does() -> None:
    group, token, job = held_back()
    assert token not in group.answers
    answer = group.heartbeat("b", 0, **FULL)
    assert (answer.member_epoch, group.told(answer)) == (1, {})
    assert group.held_back == []
    group.finish(job)
    assert group.answers[token].member_epoch == 2
    assert group.told(group.answers[token]) == {"t": {0, 1, 2, 3}}
    # b came too late for that target; any member's next heartbeat starts another one
    group.holds_jobs = False
    group.converge("a", "b")
    assert {len(group.has(each)["t"]) for each in "ab"} == {2}


def test_k11_who_asks_again_meanwhile_waits_in_place_of_the_earlier_request() -> None:
    """Its connection broke: a response to only the first heartbeat would be lost."""
    group, first, job = held_back()
    again = group.beat_token("a", 0, **FULL)
    assert group.answers[first].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert again not in group.answers
    group.finish(job)
    answer = group.answers[again]
    assert (answer.member_epoch, group.told(answer)) == (2, {"t": {0, 1, 2, 3}})


def test_k11_a_failed_assignor_is_told_to_who_waits() -> None:
    group, token, job = held_back()
    group.run(JobDone(job.token, job.group_id, NewTarget(error="no"), 0))
    answer = group.answers[token]
    assert (answer.error_code, answer.error_message) == (ErrorCode.UNKNOWN_SERVER_ERROR, "no")
    group.holds_jobs = False
    assert group.told(group.heartbeat("a", 0, **FULL)) == {"t": {0, 1, 2, 3}}


def test_k11_who_waits_may_be_gone_when_it_is_done() -> None:
    group, token, job = held_back()
    group.heartbeat("a", -1)
    group.finish(job)
    assert group.answers[token].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert dict(group.group.target) == {}


def test_k11_who_was_replaced_meanwhile_leaves_its_share_to_its_successor() -> None:
    group = ConsumerDialogue()
    group.topics(t=4)
    group.holds_jobs = True
    group.beat_token("old", 0, instance_id="i", **FULL)
    (job,) = group.held_back
    group.held_back.clear()
    group.heartbeat("old", -2, instance_id="i")
    group.heartbeat("new", 0, instance_id="i", **FULL)
    group.finish(job)
    assert group.target("new") == {"t": {0, 1, 2, 3}}
    assert set(group.group.target) == {"new"}
    group.reload()


@pytest.mark.parametrize("joins", [True, False])
def test_k11_k32_who_left_for_a_while_is_not_brought_back_by_its_earlier_heartbeat(
    joins: bool,
) -> None:
    """U7: otherwise its successor could not join until a departed member's session ends."""
    group = ConsumerDialogue()
    group.topics(t=4, u=1)
    epoch, more = 0, dict(FULL)
    if not joins:
        group.settled("old", instance_id="i")
        epoch, more = 2, {"subscribed_topic_names": ("t", "u")}
    group.holds_jobs = True
    token = group.beat_token("old", epoch, instance_id="i", **more)
    (job,) = group.held_back
    group.held_back.clear()
    group.heartbeat("old", -2, instance_id="i")
    group.finish(job)
    assert group.answers[token].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.member("old").epoch == -2
    group.holds_jobs = False
    assert group.heartbeat("new", 0, instance_id="i", **FULL).error_code == 0
    assert set(group.group.members) == {"new"}


@pytest.mark.parametrize("becomes_classic", [False, True])
def test_k11_a_target_of_a_group_that_is_gone_is_not_that_of_the_next_one(
    becomes_classic: bool,
) -> None:
    """The next group of that name may reach the epoch for which the target was computed."""
    group, token, job = held_back()
    group.advance(46_000)
    assert not group.group.members
    if becomes_classic:
        group.new_id()
    else:
        assert group.delete() is ErrorCode.NONE
    assert group.answers[token].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    again = group.beat_token("b", 0, **FULL)
    (second,) = group.held_back
    group.held_back.clear()
    group.finish(job)
    assert again not in group.answers
    assert dict(group.group.target) == {}
    group.finish(second)
    assert group.told(group.answers[again]) == {"t": {0, 1, 2, 3}}


def test_k11_a_result_that_comes_twice_or_too_late_is_passed_over() -> None:
    group, _, job = held_back()
    group.finish(job)
    before = len(group.log)
    group.finish(job)
    assert len(group.log) == before


def test_c73_who_waits_is_sent_away_when_the_shard_goes() -> None:
    group, token, job = held_back()
    group.reload()
    assert group.answers[token].error_code == ErrorCode.NOT_COORDINATOR
    before = len(group.log)
    group.finish(job)
    assert len(group.log) == before


def test_k11_a_target_that_takes_long_is_not_made_again_at_once() -> None:
    """It takes at most a fifth of the time, however many members join in the meantime."""
    group, _, job = held_back()
    group.advance(100)
    group.finish(job)
    group.heartbeat("b", 0, **FULL)
    assert group.held_back == []
    group.advance(399)
    group.heartbeat("b", 2)
    assert group.held_back == []
    group.advance(1)
    group.beat_token("b", 2)
    assert len(group.held_back) == 1


def test_k11_a_group_deleted_meanwhile_stays_so() -> None:
    group, _, job = held_back()
    group.heartbeat("a", -1)
    group.delete()
    group.finish(job)
    assert dict(group.shard.log.consumer_groups) == {}
