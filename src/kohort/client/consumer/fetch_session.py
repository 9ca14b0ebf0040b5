"""What a broker remembers of a consumer's fetches, so that only what changed is sent (KIP-227).

The first fetch names every partition and opens a session. Those after it name what was added, what
is read from another offset, and what is no longer wanted; the answers leave out the partitions
that have nothing new. A broker that keeps no sessions answers with session 0, and gets all each
time.
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
    """What one request says.

    Attributes:
        session_id: The session, 0 for none.
        epoch: Number of the request in it; 0 begins a new one.
        topics: What was added or changed; all in the first one.
        forgotten: What the broker need not look for any more.
    """

    session_id: int
    epoch: int
    topics: tuple[FetchTopic, ...]
    forgotten: tuple[ForgottenTopic, ...]


def alone(asked: AskedOf) -> Fetch:
    """Return what to ask without a session, beside it."""
    return Fetch(_NONE, _OUTSIDE, _topics(asked.items()), ())


class FetchSession:
    """The session with one broker, which is sent one fetch at a time.

    Attributes:
        asked: What the last fetch asked for. An entry that is still true is given to the next one
            as it is, and so is known to be unchanged.
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
        """Return what to ask so that exactly `wanted` is fetched."""
        before, self.asked = self.asked, wanted
        changed = [(key, each) for key, each in wanted.items() if before.get(key) is not each]
        # A partition that was left and comes again, or a topic recreated, is another one: of the
        # old one the broker would pass over what it told already.
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
        """Go on in the session that the broker names."""
        if self._epoch == _BEGIN:
            self._id = response.session_id
            self._epoch = _FIRST if self._id != _NONE else _BEGIN
        elif response.session_id == self._id:
            self._epoch = self._epoch + 1 if self._epoch < _LAST else _FIRST
        else:
            self._id, self._epoch = _NONE, _BEGIN

    def failed(self, error: KohortError) -> bool:
        """Begin again; return whether to do so at once: only the session was lost."""
        code = error.code if isinstance(error, KafkaError) else None
        was_open = self._epoch != _BEGIN
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = _NONE
        self._epoch = _BEGIN
        return was_open and code in _LOST


def _is_same(before: Asked | None, now: Asked) -> bool:
    """Whether a partition is none that was asked for otherwise than from another offset."""
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
