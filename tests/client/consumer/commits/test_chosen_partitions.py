"""Auto-commit of partitions that the application chose by `assign` and stops reading."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import AdminClient, Consumer, Producer
from kohort.types import TopicPartition

RECORDS = 100


def read_all(consumer: Consumer) -> None:
    """Read all records, and poll once more, which marks them as processed."""
    count = 0
    while count < RECORDS:
        count += sum(map(len, consumer.poll(1000).values()))
    consumer.poll(0)


def assign_another(consumer: Consumer) -> None:
    consumer.assign([TopicPartition("t", 1)])
    read_all(consumer)


def unsubscribe(consumer: Consumer) -> None:
    consumer.unsubscribe()


def unsubscribe_and_read(consumer: Consumer) -> None:
    consumer.unsubscribe()
    assign_another(consumer)


@pytest.mark.parametrize(
    ("then", "is_on", "committed"),
    [
        (assign_another, True, {0: RECORDS, 1: RECORDS}),
        (assign_another, False, {}),
        (unsubscribe, True, {0: RECORDS}),
        (unsubscribe_and_read, True, {0: RECORDS, 1: RECORDS}),
    ],
)
def test_what_was_done_is_committed_when_it_is_read_no_further(
    then: Callable[[Consumer], None], is_on: bool, committed: dict[int, int]
) -> None:
    group = uuid.uuid4().hex
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 2)
        address = broker.bootstrap_servers
        with Producer(bootstrap_servers=address) as producer:
            for number in range(2 * RECORDS):
                producer.send("t", b"%d" % number, partition=number % 2)
        with Consumer(
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=is_on,
            auto_commit_interval_ms=600_000,
        ) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            read_all(consumer)
            then(consumer)
        with AdminClient(bootstrap_servers=address) as admin:
            found = admin.list_group_offsets(group)
    assert {place.partition: stored.offset for place, stored in found.items()} == committed
