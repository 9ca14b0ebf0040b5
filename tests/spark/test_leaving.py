"""A query that is drained or stopped while its group rebalances: its last batch is committed.

A cooperative member reads and commits while the group waits for others to join, which takes as
long as the slowest one needs. Once all have joined, the group refuses commits until its plan is
there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kohort.errors import ErrorCode, RebalanceInProgressError
from kohort.group import Subscription
from kohort.group.subscription import encode_subscription
from kohort.spark.completion.control import freeze, is_drained
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.messages.membership import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
)
from tests.broker.peer import Peer
from tests.spark.playing import PlayedQuery, committed, options, produce

DEADLINE_S = 60
COUNT = 10


def until(condition: Callable[[], object], act: Callable[[], object] = lambda: None) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        act()


class Silent:
    """A member that joins once and then says nothing, so that the next rebalance waits for it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._group = f"group-of-{topic}"
        self._peer = Peer(bootstrap, DEADLINE_S)
        metadata = encode_subscription(Subscription(topics=frozenset({topic})))
        self._protocols = (JoinGroupRequestProtocol(name="cooperative-sticky", metadata=metadata),)
        self._member_id = ""

    def join(self) -> None:
        """Join, and take the first assignment: nothing, as others have yet to give it up."""
        joined = self._join()
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            joined = self._join()
        assert joined.error_code == 0, joined
        synced = self._peer.ask(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                protocol_type="consumer",
                protocol_name="cooperative-sticky",
                assignments=(),
            ),
            5,
        )
        assert synced.error_code == 0, synced

    def _join(self) -> JoinGroupResponse:
        return self._peer.ask(
            JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=DEADLINE_S * 1000,
                rebalance_timeout_ms=DEADLINE_S * 1000,
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=self._protocols,
            ),
            5,
        )


def joins_again(query: PlayedQuery) -> bool:
    """Whether the query's member waits for the answer to its JoinGroup."""
    core = query.reader.driver._consumer._core
    assert core is not None
    assert core.membership is not None
    return bool(core.membership.member.state.name == "PREPARING_REBALANCE")


@contextmanager
def in_a_rebalance(bootstrap: str, topic: str) -> Iterator[PlayedQuery]:
    """A query that has written a batch while its group waits for another member."""
    seen = {"checkpointLocation": "/is-not-there"}  # so that it may share its group
    query = PlayedQuery(options(bootstrap, topic, "cooperative", **seen))
    try:
        produce(bootstrap, topic, dict.fromkeys(range(4), COUNT))
        query.run_until(4 * COUNT)
        silent = Silent(bootstrap, topic)
        silent.join()
        until(lambda: joins_again(query))
        produce(bootstrap, topic, dict.fromkeys(range(4), COUNT))
        until(query.offer)
        query.write()
        yield query
    finally:
        query.reader.stop()


def is_stored(bootstrap: str, topic: str, query: PlayedQuery) -> bool:
    ends = {partition: offset + 1 for partition, offset in sorted(query.sink)}
    return committed(bootstrap, topic, ends) == ends


def test_a_drained_query_commits_its_last_batch_while_the_group_waits(
    bootstrap: str, topic: str
) -> None:
    with in_a_rebalance(bootstrap, topic) as query:
        control = query.reader.driver._control.directory
        freeze(control)
        until(lambda: is_drained(control), query.offer)
        assert is_stored(bootstrap, topic, query)


def test_a_stopped_query_commits_its_last_batch_while_the_group_waits(
    bootstrap: str, topic: str
) -> None:
    with in_a_rebalance(bootstrap, topic) as query:
        query.offer()
        query.reader.stop()
        assert is_stored(bootstrap, topic, query)


class Refusing:
    """Refuses commits as the group does between JoinGroup and SyncGroup, until it is told."""

    def __init__(self, query: PlayedQuery, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_refused, self.is_over = threading.Event(), threading.Event()
        self._membership = query.reader.driver._member
        self._commit = self._membership._consumer.commit
        monkeypatch.setattr(self._membership._consumer, "commit", self._try)

    def _try(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        if not self.is_over.is_set():
            if self._membership.is_closing:
                self.is_refused.set()
            raise RebalanceInProgressError("not now")
        self._commit(offsets)


def test_a_query_whose_commits_are_refused_is_not_drained(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_a_rebalance(bootstrap, topic) as query:
        refusing = Refusing(query, monkeypatch)
        control = query.reader.driver._control.directory
        freeze(control)
        query.offer()
        assert not is_drained(control)
        refusing.is_over.set()
        until(lambda: is_drained(control), query.offer)
        assert is_stored(bootstrap, topic, query)


def test_a_query_whose_commits_are_refused_is_not_stopped(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_a_rebalance(bootstrap, topic) as query:
        refusing = Refusing(query, monkeypatch)
        query.offer()
        stopping = threading.Thread(target=query.reader.stop)
        stopping.start()
        assert refusing.is_refused.wait(DEADLINE_S)
        refusing.is_over.set()
        stopping.join()
        assert is_stored(bootstrap, topic, query)
