"""A retried commit never undoes a later commit that is already stored."""

from __future__ import annotations

import threading
import uuid

import pytest

from kohort import AdminClient, Consumer, TopicPartition
from tests.client.refusing_proxy import Offsets, RefusingProxy
from tests.real_kafka import foreign

WAIT_S = 60


@pytest.mark.parametrize(("older", "newer"), [(100, 10), (11, 101)])
def test_a_commit_that_is_sent_again_does_not_undo_a_later_one(
    bootstrap: str, older: int, newer: int
) -> None:
    place, group = TopicPartition(foreign.new_topic(bootstrap), 0), uuid.uuid4().hex
    is_later_stored = threading.Event()

    def refuses(offsets: Offsets) -> bool:
        return offsets == {0: older} and not is_later_stored.is_set()

    with RefusingProxy(bootstrap) as proxy:
        proxy.refuses = refuses
        with Consumer(
            bootstrap_servers=proxy.bootstrap_servers, group_id=group, enable_auto_commit=False
        ) as consumer:
            first = consumer.commit_async({place: older})
            consumer.commit({place: newer})
            is_later_stored.set()
            first.result(WAIT_S)
        assert {0: older} not in proxy.stored
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        assert admin.list_group_offsets(group)[place].offset == newer


def test_partitions_that_no_later_commit_has_are_stored_all_the_same(bootstrap: str) -> None:
    topic, group = foreign.new_topic(bootstrap, partitions=2), uuid.uuid4().hex
    one, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    is_later_stored = threading.Event()
    with RefusingProxy(bootstrap) as proxy:
        proxy.refuses = lambda offsets: len(offsets) == 2 and not is_later_stored.is_set()
        with Consumer(
            bootstrap_servers=proxy.bootstrap_servers, group_id=group, enable_auto_commit=False
        ) as consumer:
            first = consumer.commit_async({one: 5, other: 6})
            consumer.commit({one: 7})
            is_later_stored.set()
            first.result(WAIT_S)
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        found = admin.list_group_offsets(group)
    assert {place: at.offset for place, at in found.items()} == {one: 7, other: 6}
