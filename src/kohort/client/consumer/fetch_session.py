"""Incremental fetch sessions: brokers remember fetches, so only changes are sent (KIP-227).

The first fetch names every partition and opens a session. Later fetches name partitions that were
added, are read from another offset, or are no longer wanted; answers leave out partitions without
news. A broker without sessions answers with session 0, and gets the full list each time.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kohort.client.consumer.partitions import Asked
from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.types import TopicPartition
from kohort.wire.messages.fetch import FetchPartition, FetchResponse, FetchTopic, ForgottenTopic

_NONE = 0
_OUTSIDE = -1
_BEGIN = 0
_FIRST = 1
_LAST = 0x7FFFFFFF
_LOST = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


AskedOf = Mapping[TopicPartition, Asked]


class Fetch(NamedTuple):
    """The contents of one request.

    Attributes:
        session_id: The session, 0 for none.
        epoch: Number of the request in the session; 0 starts a new session.
        topics: Added or changed partitions; all of them in the first request.
        forgotten: Partitions that are no longer wanted.
    """

    session_id: int
    epoch: int
    topics: tuple[FetchTopic, ...]
    forgotten: tuple[ForgottenTopic, ...]


def alone(asked: AskedOf) -> Fetch:
    """Return a fetch without a session, beside the session's own."""
    return Fetch(_NONE, _OUTSIDE, _topics(asked.items()), ())


class FetchSession:
    """The session with one broker, with one fetch at a time.

    Attributes:
        asked: The partitions of the last fetch. An unchanged partition is passed to the next fetch
            as the same object, which shows that it is unchanged.
    """

    def __init__(self) -> None:
        self.asked: AskedOf = {}
        self._id = _NONE
        self._epoch = _BEGIN

    @property
    def is_whole(self) -> bool:
        """Whether the last fetch named all partitions, so that its answer does, too."""
        return self._epoch == _BEGIN

    def ask(self, wanted: AskedOf) -> Fetch:
        """Return the request that fetches exactly `wanted`."""
        before, self.asked = self.asked, wanted
        changed = [(key, each) for key, each in wanted.items() if before.get(key) is not each]
        # A partition that was dropped and comes back, or is of a recreated topic, is new: for the
        # old one, the broker would leave out what it has already sent.
        if not all(_is_same(before.get(key), each) for key, each in changed):
            self._epoch = _BEGIN
        if self._epoch == _BEGIN:
            return Fetch(self._id, _BEGIN, _topics(wanted.items()), ())
        kept = len(wanted) - sum(key not in before for key, _ in changed)
        gone = (
            []
            if kept == len(before)
            else [each for each in before.items() if each[0] not in wanted]
        )
        return Fetch(self._id, self._epoch, _topics(changed), _forgotten(gone))

    def answered(self, response: FetchResponse) -> None:
        """Continue with the session that the broker names."""
        if self._epoch == _BEGIN:
            self._id = response.session_id
            self._epoch = _FIRST if self._id != _NONE else _BEGIN
        elif response.session_id == self._id:
            self._epoch = self._epoch + 1 if self._epoch < _LAST else _FIRST
        else:
            self._id, self._epoch = _NONE, _BEGIN

    def failed(self, error: KohortError) -> bool:
        """Start over; return whether to do so at once, because only the session was lost."""
        code = error.code if isinstance(error, KafkaError) else None
        was_open = self._epoch != _BEGIN
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = _NONE
        self._epoch = _BEGIN
        return was_open and code in _LOST


def _is_same(before: Asked | None, now: Asked) -> bool:
    """Whether a partition is new, or differs from the last request only in its offset."""
    return before is None or (
        before.state is now.state
        and before.incarnation == now.incarnation
        and before.topic_id == now.topic_id
    )


def _topics(asked: Iterable[tuple[TopicPartition, Asked]]) -> tuple[FetchTopic, ...]:
    return tuple(
        FetchTopic(topic=name, topic_id=topic_id, partitions=tuple(entries))
        for (name, topic_id), entries in _by_topic(asked).items()
    )


def _forgotten(asked: Iterable[tuple[TopicPartition, Asked]]) -> tuple[ForgottenTopic, ...]:
    return tuple(
        ForgottenTopic(
            topic=name, topic_id=topic_id, partitions=tuple(each.partition for each in entries)
        )
        for (name, topic_id), entries in _by_topic(asked).items()
    )


def _by_topic(
    asked: Iterable[tuple[TopicPartition, Asked]],
) -> dict[tuple[str, uuid.UUID], list[FetchPartition]]:
    topics: dict[tuple[str, uuid.UUID], list[FetchPartition]] = {}
    for partition, each in asked:
        topics.setdefault((partition.topic, each.topic_id), []).append(each.entry)
    return topics
