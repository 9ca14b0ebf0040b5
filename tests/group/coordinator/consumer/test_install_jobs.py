"""A job checks a member's assignment: waiting requests, and changes in the meantime (K61)."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer.decision import InstallJob
from kohort.group.coordinator.events import Unload
from tests.group.coordinator.consumer.assignor_dialogue import AssignorDialogue

ALL = {"a": {"t": [0, 1, 2, 3]}}


@pytest.fixture
def group() -> AssignorDialogue:
    """Member a was asked and has all data it needs; jobs are held back from here on."""
    made = AssignorDialogue()
    assert made.asked("a")
    assert made.prepare("a").error_code == ErrorCode.NONE
    made.holds_jobs = True
    return made


def test_k61_only_who_made_it_waits_and_is_not_asked_again(group: AssignorDialogue) -> None:
    token = group.install_token("a", ALL)
    assert token not in group.answers
    assert not group.beats("a")
    assert not group.asked("b")
    group.do_jobs()
    assert group.answers[token].error_code == ErrorCode.NONE
    assert group.target("a") == {"t": {0, 1, 2, 3}}
    # b came too late for that target, and computes the next one
    group.holds_jobs = False
    assert group.beats("b") or group.beats("a")


def test_k61_time_does_not_run_out_while_it_is_looked_at(group: AssignorDialogue) -> None:
    token = group.install_token("a", ALL)
    group.advance(20_000)
    assert group.fell_back == []
    group.do_jobs()
    assert group.answers[token].error_code == ErrorCode.NONE
    assert group.is_made()


def test_k61_of_two_results_the_later_counts(group: AssignorDialogue) -> None:
    """A member whose connection broke sends its result again."""
    first = group.install_token("a", {"a": {"t": [0]}})
    second = group.install_token("a", ALL)
    group.do_jobs()
    assert group.answers[first].error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert group.answers[second].error_code == ErrorCode.NONE
    assert group.target("a") == {"t": {0, 1, 2, 3}}


def test_k61_meanwhile_there_is_nothing_to_prepare(group: AssignorDialogue) -> None:
    group.install_token("a", ALL)
    assert group.prepare("a").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    group.do_jobs()
    assert group.is_made()


def test_k61_who_made_it_may_leave(group: AssignorDialogue) -> None:
    token = group.install_token("a", ALL)
    group.heartbeat("a", -1)
    group.do_jobs()
    assert group.answers[token].error_code == ErrorCode.NONE
    assert group.group.state.value == "Empty"
    assert not group.is_asking()


def test_k61_the_group_may_be_deleted(group: AssignorDialogue) -> None:
    token = group.install_token("a", ALL)
    group.heartbeat("a", -1)
    assert group.delete() is ErrorCode.NONE
    group.do_jobs()
    assert group.answers[token].error_code == ErrorCode.STALE_MEMBER_EPOCH


def test_k61_a_coordinator_that_goes_answers_who_waits(group: AssignorDialogue) -> None:
    token = group.install_token("a", ALL)
    group.run(Unload())
    assert group.answers[token].error_code == ErrorCode.NOT_COORDINATOR


def test_k61_a_large_result_is_a_large_job(group: AssignorDialogue) -> None:
    group.install_token("a", ALL)
    (job,) = group.held_back
    assert isinstance(job, InstallJob)
    assert (job.group_id, job.size) == ("g", 5)
