"""A query whose group takes longer to give it partitions than its first batch waits."""

from __future__ import annotations

import pytest

from kohort.spark.source import driver
from kohort.spark.source.member import SourceMember
from tests.spark.conftest import Start
from tests.spark.playing import PlayedQuery, committed, produce, set_group
from tests.spark.source.test_nothing_skipped import add_a_partition

OLD = dict.fromkeys(range(4), 50)
EXPIRED = "the group has no offset for it"


@pytest.fixture
def late(start: Start, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts queries whose first batch comes before their first partition."""

    def make(last: dict[str, object] | None = None, **more: str) -> PlayedQuery:
        query = start(last, **{"startingOffsets": "latest", **more})
        waiting: list[SourceMember] = []
        with monkeypatch.context() as patch:
            patch.setattr(driver, "FIRST_ASSIGNMENT_WAIT_S", 0.0)
            patch.setattr(driver, "REBALANCE_WAIT_S", 0.0)
            patch.setattr(SourceMember, "start", lambda member: waiting.append(member))
            assert not query.offer()
        for member in waiting:
            member.start()
        assert query.last is not None
        assert query.last["topics"] == {}
        return query

    return make


@pytest.mark.parametrize("is_restarted", [False, True])
def test_latest_is_where_it_was_at_the_first_batch(
    bootstrap: str,
    topic: str,
    start: Start,
    late: Start,
    is_restarted: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    produce(bootstrap, topic, OLD)
    query = late()
    produce(bootstrap, topic, {0: 6, 3: 4})
    if is_restarted:
        query.reader.stop()
        query = start(query.last, startingOffsets="latest")
    query.run_until(10)
    assert sorted(query.sink) == [
        *((0, at) for at in range(50, 56)),
        *((3, at) for at in range(50, 54)),
    ]
    assert committed(bootstrap, topic, range(4)) == {0: 56, 1: 50, 2: 50, 3: 54}
    assert EXPIRED not in caplog.text


def test_starting_offsets_by_partition_count_as_well(
    bootstrap: str, topic: str, late: Start
) -> None:
    produce(bootstrap, topic, OLD)
    query = late(startingOffsets=f'{{"{topic}": {{"0": -1, "1": 45, "2": -2, "3": -1}}}}')
    produce(bootstrap, topic, {0: 5})
    query.run_until(60)
    assert sorted(query.sink) == [
        *((0, at) for at in range(50, 55)),
        *((1, at) for at in range(45, 50)),
        *((2, at) for at in range(50)),
    ]


def test_a_partition_that_is_added_meanwhile_is_read_from_its_beginning(
    bootstrap: str, topic: str, late: Start, caplog: pytest.LogCaptureFixture
) -> None:
    produce(bootstrap, topic, OLD)
    query = late(kafka__metadata__max__age__ms="500")
    add_a_partition(bootstrap, topic)
    produce(bootstrap, topic, {0: 1, 4: 9})
    query.run_until(10)
    assert sorted(query.sink) == [(0, 50), *((4, at) for at in range(9))]
    assert EXPIRED not in caplog.text


def test_an_offset_that_has_expired_is_still_said_and_read_again(
    bootstrap: str, topic: str, late: Start, caplog: pytest.LogCaptureFixture
) -> None:
    produce(bootstrap, topic, {0: 5, 1: 5})
    set_group(bootstrap, topic, {1: 5, 2: 0, 3: 0})
    query = late()
    assert query.last is not None
    assert "firsts" not in query.last
    query.run_until(5)
    assert {partition for partition, _ in query.sink} == {0}
    assert EXPIRED in caplog.text
