"""OffsetCommit and OffsetFetch, rule by rule (C50-C55, C61)."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode
from kohort.group.coordinator.events import TopicsDeleted
from kohort.group.member.commits import CommitIdentity, CommitVerdict, commit_request, verdict
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from tests.group.coordinator.dialogue import GROUP, Dialogue

NOBODY = CommitIdentity("", -1)


def commit(
    identity: CommitIdentity = NOBODY, offset: int = 7, metadata: str = ""
) -> OffsetCommitRequest:
    positions = {
        TopicPartition("t", 0): OffsetAndMetadata(offset, metadata),
        TopicPartition("u", 3): OffsetAndMetadata(offset + 1),
    }
    return commit_request(GROUP, identity, None, positions)


def codes(talk: Dialogue, request: OffsetCommitRequest, version: int = 9) -> list[int]:
    answer = talk.get(request, version)
    return [entry.error_code for topic in answer.topics for entry in topic.partitions]


def stored(talk: Dialogue) -> dict[TopicPartition, int]:
    return {p: value.offset for p, value in talk.shard.log.offsets_of(GROUP).items()}


BOTH = {TopicPartition("t", 0): 7, TopicPartition("u", 3): 8}


def test_c50_a_commit_without_identity_makes_a_group_that_survives() -> None:
    talk = Dialogue()
    assert codes(talk, commit()) == [0, 0]
    assert talk.state == "Empty"
    talk.reload()
    assert stored(talk) == BOTH
    assert talk.state == "Empty"


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_c50_a_member_of_no_group_is_refused(version: int, code: ErrorCode) -> None:
    talk = Dialogue()
    assert codes(talk, commit(CommitIdentity("who", 1)), version) == [code, code]
    assert talk.state == "Dead"


def test_c51_only_members_of_the_generation_commit_while_there_are_any() -> None:
    talk = Dialogue()
    (a,) = talk.stable("a")
    assert codes(talk, commit())[0] == ErrorCode.UNKNOWN_MEMBER_ID
    assert codes(talk, commit(CommitIdentity("who", 1)))[0] == ErrorCode.UNKNOWN_MEMBER_ID
    assert codes(talk, commit(CommitIdentity(a, 0)))[0] == ErrorCode.ILLEGAL_GENERATION
    assert stored(talk) == {}
    assert codes(talk, commit(CommitIdentity(a, 1))) == [0, 0]
    assert stored(talk) == BOTH


def test_c51_between_the_phases_nobody_commits_but_while_all_join_the_old_ones_may() -> None:
    talk = Dialogue()
    a, b = talk.stable("a", "b")
    talk.join(a)
    assert codes(talk, commit(CommitIdentity(b, 1))) == [0, 0]
    talk.join(b)
    refused = codes(talk, commit(CommitIdentity(b, 2)))
    assert refused[0] == ErrorCode.REBALANCE_IN_PROGRESS


def test_c51_a_commit_says_that_the_member_is_alive() -> None:
    talk = Dialogue()
    (a,) = talk.stable("a")
    talk.advance(9_000)
    codes(talk, commit(CommitIdentity(a, 1)))
    talk.advance(9_000)
    assert talk.beat(a, 1) == ErrorCode.NONE


def test_c52_too_long_a_text_hurts_only_its_partition() -> None:
    talk = Dialogue()
    for too_long in ("é" * 4_097, "\U0001f600" * 2_049):
        assert codes(talk, commit(metadata=too_long)) == [ErrorCode.OFFSET_METADATA_TOO_LARGE, 0]
    assert stored(talk) == {TopicPartition("u", 3): 8}
    for fits in ("é" * 4_096, "\U0001f600" * 2_048):
        assert codes(talk, commit(metadata=fits)) == [0, 0]


def test_c55_fetching_what_is_there_and_what_is_not() -> None:
    talk = Dialogue()
    codes(talk, commit(metadata="note"))
    asked = OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1))
    answer = talk.get(OffsetFetchRequest(group_id=GROUP, topics=(asked,)), 7)
    found = [(p.committed_offset, p.metadata) for p in answer.topics[0].partitions]
    assert found == [(7, "note"), (-1, "")]
    everything = talk.get(OffsetFetchRequest(group_id=GROUP, topics=None), 7)
    assert [topic.name for topic in everything.topics] == ["t", "u"]


def test_c55_several_groups_at_once() -> None:
    talk = Dialogue()
    codes(talk, commit())
    groups = tuple(OffsetFetchRequestGroup(group_id=name, topics=None) for name in (GROUP, "other"))
    answer = talk.get(OffsetFetchRequest(groups=groups), 9)
    assert [len(group.topics) for group in answer.groups] == [2, 0]
    assert [group.error_code for group in answer.groups] == [0, 0]


def test_c61_positions_go_with_their_topic_and_the_group_with_its_last_position() -> None:
    talk = Dialogue()
    codes(talk, commit())
    talk.run(TopicsDeleted(frozenset({"t"})))
    assert stored(talk) == {TopicPartition("u", 3): 8}
    talk.run(TopicsDeleted(frozenset({"u"})))
    assert talk.state == "Dead"
    talk.reload()


ME, LATER = CommitIdentity("me", 1), CommitIdentity("me", 2)


@pytest.mark.parametrize(
    ("code", "present", "rebalancing", "expected"),
    [
        (ErrorCode.NONE, ME, False, CommitVerdict.DONE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ME, False, CommitVerdict.RETRY),
        (ErrorCode.NOT_COORDINATOR, ME, False, CommitVerdict.RETRY),
        (ErrorCode.REBALANCE_IN_PROGRESS, ME, False, CommitVerdict.REBALANCE_IN_PROGRESS),
        (ErrorCode.ILLEGAL_GENERATION, ME, False, CommitVerdict.COMMIT_FAILED),
        (ErrorCode.ILLEGAL_GENERATION, LATER, False, CommitVerdict.COMMIT_FAILED),
        (ErrorCode.ILLEGAL_GENERATION, LATER, True, CommitVerdict.REBALANCE_IN_PROGRESS),
        (ErrorCode.UNKNOWN_MEMBER_ID, ME, True, CommitVerdict.COMMIT_FAILED),
        (ErrorCode.FENCED_INSTANCE_ID, LATER, False, CommitVerdict.COMMIT_FAILED),
        (ErrorCode.FENCED_INSTANCE_ID, ME, False, CommitVerdict.RAISE),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, ME, False, CommitVerdict.RAISE),
        (12345, ME, False, CommitVerdict.RAISE),
    ],
)
def test_l11_what_the_answer_to_a_commit_means(
    code: int, present: CommitIdentity, rebalancing: bool, expected: CommitVerdict
) -> None:
    assert verdict(code, ME, present, rebalancing=rebalancing) is expected
