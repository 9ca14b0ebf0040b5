"""A query that is drained or stopped while its group rebalances: its last batch is committed.

A group refuses the commits of members that wait in a rebalance, which takes as long as the slowest
member needs to join again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kohort import Consumer
from kohort.spark.control import freeze, is_drained
from tests.spark.playing import PROTOCOLS, PlayedQuery, committed, describe, options, produce

DEADLINE_S = 60
COUNT = 10


def until(condition: Callable[[], object], act: Callable[[], object] = lambda: None) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        act()


def member(bootstrap: str, topic: str, protocol: str) -> Consumer:
    """A member for which the group waits when it does not poll."""
    settings: dict[str, Any] = {
        key.removeprefix("kafka.").replace(".", "_"): value
        for key, value in PROTOCOLS[protocol].items()
        if "heartbeat" not in key
    }
    return Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"group-of-{topic}",
        heartbeat_interval_ms=100,
        enable_auto_commit=False,
        **settings,
    )


@contextmanager
def rebalancing(bootstrap: str, topic: str, protocol: str) -> Iterator[None]:
    """The group waits for a member that does not poll, because another one has come."""
    newcomer = member(bootstrap, topic, protocol)
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.is_set():
            newcomer.poll_membership(50)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        until(lambda: "PREPARING" in describe(bootstrap, topic).state.name)
        yield
    finally:
        is_over.set()
        thread.join()
        newcomer.close()


@contextmanager
def two_members(
    bootstrap: str, topic: str, protocol: str
) -> Iterator[tuple[PlayedQuery, Consumer]]:
    """A query that has written a batch of its own partitions, beside a member that polls no more.

    The group waits for that one when it rebalances, until it is closed.
    """
    query = PlayedQuery(options(bootstrap, topic, protocol, startingOffsets="earliest"))
    slow = member(bootstrap, topic, protocol)

    def both() -> None:
        query.offer()
        slow.poll_membership(50)

    try:
        until(lambda: slow.assignment(), both)
        until(lambda: not query.offer(), lambda: slow.poll_membership(50))
        produce(bootstrap, topic, dict.fromkeys(range(4), COUNT))
        until(lambda: query.offer(), lambda: slow.poll_membership(50))
        query.write()
        yield query, slow
    finally:
        query.reader.stop()
        slow.close()


def waits_in_rebalance(query: PlayedQuery, protocol: str) -> bool:
    """Whether the query's member has noticed: a cooperative one has joined again."""
    core = query.reader.driver._consumer._core
    assert core is not None
    assert core.membership is not None
    awaited = "REVOKING" if protocol == "eager" else "PREPARING_REBALANCE"
    return bool(core.membership.member.state.name == awaited)


def is_stored(bootstrap: str, topic: str, query: PlayedQuery) -> bool:
    ends = {partition: offset + 1 for partition, offset in sorted(query.sink)}
    return committed(bootstrap, topic, ends) == ends


@pytest.mark.parametrize("protocol", ["eager", "cooperative"])
def test_a_drained_query_has_committed_its_last_batch(
    bootstrap: str, topic: str, protocol: str
) -> None:
    with (
        two_members(bootstrap, topic, protocol) as (query, slow),
        rebalancing(bootstrap, topic, protocol),
    ):
        control = query.reader.driver._control.directory
        until(lambda: waits_in_rebalance(query, protocol))
        freeze(control)
        query.offer()
        assert not is_drained(control) or is_stored(bootstrap, topic, query)
        slow.close()
        until(lambda: is_drained(control), query.offer)
        assert is_stored(bootstrap, topic, query)


@pytest.mark.parametrize("protocol", ["eager", "cooperative"])
def test_a_stopped_query_has_committed_its_last_batch(
    bootstrap: str, topic: str, protocol: str
) -> None:
    with (
        two_members(bootstrap, topic, protocol) as (query, slow),
        rebalancing(bootstrap, topic, protocol),
    ):
        membership = query.reader.driver._membership
        until(lambda: waits_in_rebalance(query, protocol))
        query.offer()
        stopping = threading.Thread(target=query.reader.stop)
        stopping.start()
        until(lambda: membership.is_closing)
        slow.close()
        stopping.join()
        assert is_stored(bootstrap, topic, query)
