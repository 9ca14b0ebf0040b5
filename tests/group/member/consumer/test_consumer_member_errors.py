"""Errors of heartbeats and commits for the member of KIP-848 (L35-L37)."""

from __future__ import annotations

import pytest

from kohort.errors import CommitFailedError, ErrorCode, KafkaError, LocalProtocolError
from kohort.group.events import Ownership
from kohort.group.member.commits import CommitIdentity, CommitVerdict
from kohort.group.member.consumer.machine import ConsumerMemberState
from kohort.group.member.events import (
    CommitAnswered,
    CoordinatorLost,
    LookupFailed,
    RejoinAsked,
    ResponseArrived,
    Subscribed,
    Unsubscribed,
)
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatResponse
from tests.group.member.consumer.consumer_member import (
    INTERVAL_MS,
    MEMBER_ID,
    Stage,
    assignment,
    flights,
    joining,
    reconciling,
    stable,
)

S = ConsumerMemberState
LOST = Ownership.LOST

FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
PASSING = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
FATAL = (
    ErrorCode.INVALID_REQUEST,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.UNSUPPORTED_ASSIGNOR,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.INVALID_REGULAR_EXPRESSION,
    12345,
)


def beating(state: ConsumerMemberState) -> Stage:
    """A member in that state, with a heartbeat on its way."""
    if state is S.JOINING:
        return joining()
    if state is S.RECONCILING:
        stage = reconciling(1, 2)
        stage.wait(INTERVAL_MS)
    elif state is S.ACKNOWLEDGING:
        stage = reconciling(0)
        stage.wait(INTERVAL_MS)
        stage.called()
        stage.called()
    else:
        stage = stable(0, 1)
        stage.wait(INTERVAL_MS)
        if state is S.PREPARE_LEAVING:
            stage.tell(Unsubscribed())
    assert stage.state() is state
    return stage


MEMBERS = (S.JOINING, S.RECONCILING, S.ACKNOWLEDGING, S.STABLE, S.PREPARE_LEAVING)


@pytest.mark.parametrize("code", FENCED)
@pytest.mark.parametrize("state", [S.RECONCILING, S.ACKNOWLEDGING, S.STABLE])
def test_l35_who_is_removed_loses_what_it_has_and_joins_again(
    code: ErrorCode, state: ConsumerMemberState
) -> None:
    stage = beating(state)
    stage.answer(code=code)
    assert stage.state() is S.FENCED
    assert stage.member.generation_id == -1
    while stage.callbacks:
        stage.called()
    assert stage.words[-1][0] is LOST
    assert stage.believes == set()
    assert stage.state() is S.JOINING
    assert (stage.heartbeat.member_id, stage.heartbeat.member_epoch) == (MEMBER_ID, 0)


def test_l35_who_has_nothing_is_told_nothing_and_joins_at_once() -> None:
    stage = stable()
    stage.wait(INTERVAL_MS)
    stage.answer(code=ErrorCode.FENCED_MEMBER_EPOCH)
    assert stage.state() is S.JOINING
    assert not stage.callbacks


def test_l35_who_is_refused_as_it_joins_waits_longer_each_time() -> None:
    stage = joining()
    waits = []
    for _ in range(5):
        stage.answer(code=ErrorCode.UNKNOWN_MEMBER_ID)
        assert stage.state() is S.JOINING
        assert not stage.requests
        before = stage.now
        while not stage.requests:
            stage.wait(100)
        waits.append(stage.now - before)
    assert waits == [100, 200, 400, 800, 1_000]


def test_l35_removed_while_leaving_there_is_no_good_bye() -> None:
    stage = beating(S.PREPARE_LEAVING)
    stage.answer(code=ErrorCode.UNKNOWN_MEMBER_ID)
    stage.called()
    assert stage.state() is S.UNSUBSCRIBED
    assert not stage.requests


def test_l36_a_group_that_is_gone_is_fatal_only_to_who_joins() -> None:
    stage = joining()
    stage.answer(code=ErrorCode.GROUP_ID_NOT_FOUND)
    assert stage.state() is S.FATAL


@pytest.mark.parametrize("code", PASSING)
@pytest.mark.parametrize("state", MEMBERS)
def test_l36_what_passes_changes_nothing(code: ErrorCode, state: ConsumerMemberState) -> None:
    stage = beating(state)
    owned, epoch = stage.member.assigned, stage.member.generation_id
    stage.answer(code=code)
    assert stage.state() is state
    assert (stage.member.assigned, stage.member.generation_id) == (owned, epoch)
    assert stage.looking_up is (
        code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    )
    assert bool(stage.raised) is (code is ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if stage.looking_up:
        stage.find()
    stage.wait(100)
    assert stage.requests


@pytest.mark.parametrize("code", FATAL)
@pytest.mark.parametrize("state", MEMBERS)
def test_l36_what_is_fatal_ends_it(code: int, state: ConsumerMemberState) -> None:
    """U7: and it is said, UNRELEASED_INSTANCE_ID too."""
    stage = beating(state)
    stage.answer(code=code, message="said the broker")
    assert stage.state() is S.FATAL
    (error,) = stage.raised
    assert isinstance(error, KafkaError)
    assert (error.code, "said the broker" in str(error)) == (code, True)
    while stage.callbacks:
        stage.called()
    assert stage.believes == set()
    assert stage.member.is_failed
    with pytest.raises(LocalProtocolError):
        stage.tell(Subscribed(frozenset({"flights"})))


def test_l36_a_version_that_the_broker_lacks_is_fatal() -> None:
    stage = joining()
    stage.lose_answer(ErrorCode.UNSUPPORTED_VERSION)
    assert stage.state() is S.FATAL


def test_l36_a_group_that_may_not_be_read_is_fatal() -> None:
    stage = joining()
    stage.answer(code=ErrorCode.NOT_COORDINATOR)
    stage.tell(LookupFailed(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert stage.state() is S.FATAL


@pytest.mark.parametrize("epoch", [0, -1, 1])
def test_l35_an_epoch_that_is_over_is_not_believed(epoch: int) -> None:
    stage = stable(0, epoch=2)
    stage.wait(INTERVAL_MS)
    stage.answer(epoch, assignment())
    assert (stage.state(), stage.member.generation_id) == (S.STABLE, 2)
    stage.wait(100)
    assert stage.heartbeat.rebalance_timeout_ms != -1


def test_l35_an_answer_to_who_we_were_changes_nothing() -> None:
    stage = beating(S.STABLE)
    token = stage.requests[0].token
    stage.lose_answer()
    before = stage.member.session
    stage.tell(ResponseArrived(token, ConsumerGroupHeartbeatResponse(error_code=25)))
    assert stage.member.session == before


def test_kip_580_each_look_up_waits_longer() -> None:
    stage = stable(0)
    stage.tell(CoordinatorLost())
    waits = []
    for _ in range(5):
        assert stage.looking_up
        stage.looking_up = False
        stage.tell(LookupFailed())
        before = stage.now
        while not stage.looking_up:
            stage.wait(100)
        waits.append(stage.now - before)
    assert waits == [200, 400, 800, 1_000, 1_000]


# ----------------------------------------------------------------------------------------- commits


def test_l37_a_commit_is_made_in_the_members_epoch() -> None:
    stage = stable(0, epoch=7)
    request = stage.member.commit_request({TopicPartition("flights", 0): OffsetAndMetadata(5)})
    assert (request.member_id, request.generation_id_or_member_epoch) == (MEMBER_ID, 7)
    assert stage.member.identity == CommitIdentity(MEMBER_ID, 7)


VERDICTS = {
    ErrorCode.NONE: CommitVerdict.DONE,
    ErrorCode.STALE_MEMBER_EPOCH: CommitVerdict.STALE_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID: CommitVerdict.COMMIT_FAILED,
    ErrorCode.NOT_COORDINATOR: CommitVerdict.RETRY,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: CommitVerdict.RETRY,
    ErrorCode.OFFSET_METADATA_TOO_LARGE: CommitVerdict.RAISE,
}


@pytest.mark.parametrize(("code", "verdict"), VERDICTS.items())
def test_l37_what_the_answer_to_a_commit_means(code: ErrorCode, verdict: CommitVerdict) -> None:
    stage = stable(0)
    sent = stage.member.identity
    assert stage.member.commit_verdict(sent, code) is verdict
    stage.tell(CommitAnswered(sent, code))
    assert (stage.state(), stage.member.assigned) == (S.STABLE, flights(0))
    assert stage.looking_up is (code is ErrorCode.NOT_COORDINATOR)


def test_l37_who_is_not_a_member_cannot_commit() -> None:
    with pytest.raises(CommitFailedError):
        joining().member.commit_request({})


def test_l39_a_rebalance_cannot_be_enforced() -> None:
    with pytest.raises(LocalProtocolError):
        stable(0).tell(RejoinAsked("because"))
