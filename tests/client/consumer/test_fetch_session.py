"""The numbers of fetches in a session (KIP-227); tests/real_kafka checks their results."""

from __future__ import annotations

import uuid

import pytest

from kohort.client.consumer.fetch_session import FetchSession
from kohort.client.consumer.partitions import Asked, PartitionState
from kohort.client.net.metadata import ClusterMetadata
from kohort.errors import ErrorCode, KafkaError, KohortError, RemoteProtocolError
from kohort.types import TopicPartition
from kohort.wire.messages.fetch import FetchPartition, FetchResponse

TOPIC_ID = uuid.UUID(int=1)
METADATA = ClusterMetadata()
ONE, TWO = TopicPartition("t", 1), TopicPartition("t", 2)


def asked(partition: TopicPartition, offset: int = 0, topic_id: uuid.UUID = TOPIC_ID) -> Asked:
    entry = FetchPartition(
        partition=partition.partition, fetch_offset=offset, partition_max_bytes=1
    )
    return Asked(PartitionState(partition), 0, METADATA, 1, topic_id, entry)


def answer(session_id: int) -> FetchResponse:
    return FetchResponse(session_id=session_id, responses=())


def opened(*partitions: TopicPartition) -> tuple[FetchSession, dict[TopicPartition, Asked]]:
    session, wanted = FetchSession(), {each: asked(each) for each in partitions}
    session.ask(wanted)
    session.answered(answer(7))
    return session, wanted


def test_each_request_has_the_next_number_and_after_the_last_comes_the_first() -> None:
    session, wanted = opened(ONE)
    numbers = []
    for _ in range(3):
        numbers.append(session.ask(wanted).epoch)
        session.answered(answer(7))
    assert numbers == [1, 2, 3]
    session._epoch = 0x7FFFFFFF  # no test has time to reach it
    assert session.ask(wanted).epoch == 0x7FFFFFFF
    session.answered(answer(7))
    assert session.ask(wanted).epoch == 1


def test_only_what_changed_is_named_and_what_is_not_wanted_is_forgotten() -> None:
    session, wanted = opened(ONE, TWO)
    fetch = session.ask({ONE: wanted[ONE]})
    assert (fetch.topics, fetch.forgotten[0].partitions) == ((), (2,))
    session.answered(answer(7))
    state = wanted[ONE].state
    moved = Asked(state, 0, METADATA, 1, TOPIC_ID, asked(ONE, offset=5).entry)
    fetch = session.ask({ONE: moved})
    assert [each.fetch_offset for each in fetch.topics[0].partitions] == [5]
    assert not fetch.forgotten


@pytest.mark.parametrize("what", ["another state", "another incarnation", "another topic"])
def test_who_is_somebody_else_is_asked_for_in_a_new_session(what: str) -> None:
    """In a session, the broker reports only changes of a partition, such as the end of its log."""
    session, wanted = opened(ONE)
    state = wanted[ONE].state
    others = {
        "another state": asked(ONE),
        "another incarnation": Asked(state, 1, METADATA, 1, TOPIC_ID, wanted[ONE].entry),
        "another topic": Asked(state, 0, METADATA, 1, uuid.UUID(int=2), wanted[ONE].entry),
    }
    fetch = session.ask({ONE: others[what]})
    assert (fetch.session_id, fetch.epoch) == (7, 0)
    assert len(fetch.topics) == 1


@pytest.mark.parametrize(
    ("error", "at_once", "session_id"),
    [
        (KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND), True, 0),
        (KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH), True, 7),
        (KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR), True, 7),
        (KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR), False, 7),
        (RemoteProtocolError("nonsense"), False, 7),
    ],
)
def test_after_an_error_all_is_named_again(
    error: KohortError, at_once: bool, session_id: int
) -> None:
    session, wanted = opened(ONE)
    session.ask(wanted)
    assert session.failed(error) is at_once
    fetch = session.ask(wanted)
    assert (fetch.session_id, fetch.epoch, len(fetch.topics)) == (session_id, 0, 1)
    assert not session.failed(error)  # not the session's error: an endless retry


@pytest.mark.parametrize("session_id", [0, 8])
def test_an_answer_of_another_session_ends_ours(session_id: int) -> None:
    session, wanted = opened(ONE)
    session.ask(wanted)
    session.answered(answer(session_id))
    fetch = session.ask(wanted)
    assert (fetch.session_id, fetch.epoch) == (0, 0)
