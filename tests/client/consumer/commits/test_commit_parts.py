"""A commit of many partitions is sent in parts that a coordinator can store."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort import AdminClient, Consumer, OffsetAndMetadata, TopicPartition
from kohort.client.consumer.commits.requests import in_parts
from kohort.errors import ErrorCode, PartialFailureError
from tests.broker.processes import eventually
from tests.client.refusing_proxy import Offsets, RefusingProxy
from tests.real_kafka import foreign


@given(st.lists(st.integers(0, 4000), max_size=1500))
def test_each_offset_is_in_one_part_and_no_part_is_too_large(sizes: list[int]) -> None:
    offsets = {
        TopicPartition("t", number): OffsetAndMetadata(number, "m" * size)
        for number, size in enumerate(sizes)
    }
    parts = list(in_parts("g", offsets))
    assert [each for part in parts for each in part.items()] == list(offsets.items())
    assert all(0 < len(part) <= 500 for part in parts)
    assert all(sum(len(at.metadata) for at in part.values()) <= 256 * 1024 for part in parts)


def test_a_commit_of_many_partitions_is_stored_whole(bootstrap: str) -> None:
    count, group = 1001, uuid.uuid4().hex
    topic = foreign.new_topic(bootstrap, partitions=count)
    asked: list[int] = []

    def refuses(offsets: Offsets) -> bool:
        asked.append(len(offsets))
        return len(asked) == 2  # a refused part is sent again, the others are not

    with RefusingProxy(bootstrap) as proxy:
        proxy.refuses = refuses
        with Consumer(
            bootstrap_servers=proxy.bootstrap_servers, group_id=group, enable_auto_commit=False
        ) as consumer:
            consumer.commit({TopicPartition(topic, number): number for number in range(count)})
    assert asked == [500, 500, 1, 500]
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        found = admin.list_group_offsets(group)
    assert {place.partition: at.offset for place, at in found.items()} == {
        number: number for number in range(count)
    }


def test_a_commit_names_the_partitions_that_are_refused_and_stores_the_others(
    bootstrap: str,
) -> None:
    group, topic = uuid.uuid4().hex, foreign.new_topic(bootstrap, partitions=3)
    first, second, third = (TopicPartition(topic, number) for number in range(3))
    large = OffsetAndMetadata(4, "m" * 5000)  # more than offset.metadata.max.bytes
    with Consumer(
        bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False
    ) as consumer:
        with pytest.raises(PartialFailureError, match=f"{topic}-0 at offset 4") as raised:
            consumer.commit({first: large, second: 5, third: large})
        assert set(raised.value.errors) == {first, third}
        assert raised.value.code == ErrorCode.OFFSET_METADATA_TOO_LARGE
        found = consumer.committed(first, second, third)
    assert {place: at.offset for place, at in found.items()} == {second: 5}


def test_an_auto_commit_tells_what_was_refused(bootstrap: str) -> None:
    group, topic = uuid.uuid4().hex, foreign.new_topic(bootstrap, partitions=2)
    first, second = (TopicPartition(topic, number) for number in range(2))
    told: list[tuple[set[TopicPartition], BaseException | None]] = []
    with Consumer(
        bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False
    ) as consumer:
        consumer.commit_async(
            {first: OffsetAndMetadata(4, "m" * 5000), second: OffsetAndMetadata(5)},
            lambda offsets, error: told.append((set(offsets), error)),
        )
        eventually(lambda: consumer.poll(100) is not None and bool(told), "it is told")
    [(_, error)] = told
    assert isinstance(error, PartialFailureError)
    assert set(error.errors) == {first}
