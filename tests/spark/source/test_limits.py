from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from kohort.spark.source.limits import BatchDelay, FairLimit, share_limit
from kohort.types import TopicPartition

PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 20))
SIZES = st.dictionaries(PARTITIONS, st.integers(0, 10**6), min_size=1)


@given(SIZES, st.integers(0, 10**5))
def test_a_limit_is_shared_in_proportion(sizes: dict[TopicPartition, int], spare: int) -> None:
    limit = sum(size > 0 for size in sizes.values()) + spare
    shares = share_limit(sizes, limit)
    total = sum(sizes.values())
    assert shares.keys() == sizes.keys()
    assert sum(shares.values()) == min(limit, total)
    for partition, share in shares.items():
        assert share <= sizes[partition]
        assert (share > 0) == (sizes[partition] > 0)
        assert total <= limit or share <= 2 + limit * sizes[partition] / total


@given(st.sets(PARTITIONS, min_size=1), st.integers(1, 30))
def test_partitions_take_turns_below_one_record_each(
    partitions: set[TopicPartition], limit: int
) -> None:
    fair = FairLimit()
    sizes = dict.fromkeys(partitions, 100)
    batches = [fair.share(sizes, limit) for _ in range(math.ceil(len(sizes) / limit))]
    assert all(sum(shares.values()) == min(limit, 100 * len(sizes)) for shares in batches)
    assert {tp for shares in batches for tp, share in shares.items() if share} == partitions


@given(st.data())
def test_nobody_starves_while_others_come_and_go(data: st.DataObject) -> None:
    """A partition is passed over only by ones that have their turn before it."""
    fair = FairLimit()
    patient = TopicPartition("a", 5)
    for _ in range(21):
        others = data.draw(st.sets(PARTITIONS.filter(lambda p: p.topic == "a"), min_size=2))
        shares = fair.share(dict.fromkeys({*others, patient}, 9), 1)
        if shares[patient]:
            return
    raise AssertionError("no turn among 21 partitions in 21 batches")


def test_empty_partitions_have_no_turn() -> None:
    fair = FairLimit()
    sizes = {TopicPartition("a", number): number % 2 for number in range(6)}
    turns = [fair.share(sizes, 1) for _ in range(4)]
    assert [max(shares, key=lambda p: shares[p]).partition for shares in turns] == [1, 3, 5, 1]


def test_a_batch_waits_for_enough_records_or_long_enough() -> None:
    delay = BatchDelay(100, 1000)
    assert delay.least(5) == 1
    delay.began(5)
    assert delay.least(5) == delay.least(1004) == 100
    assert delay.least(1005) == 1
    delay.began(1005)
    assert delay.least(1006) == 100


def test_a_batch_need_not_wait() -> None:
    delay = BatchDelay(None, 1000)
    delay.began(0)
    assert delay.least(1) == 1
