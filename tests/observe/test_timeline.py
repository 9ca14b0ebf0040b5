"""The timeline against a model that simply remembers the owner of every millisecond."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kohort.observe.timeline import OwnershipTimeline
from kohort.types import TopicPartition

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
END = 60

Told = list[tuple[int, TopicPartition, str | None]]

facts = st.lists(
    st.tuples(
        st.integers(0, END - 1),
        st.sampled_from(PARTITIONS),
        st.sampled_from(["north", "south", None]),
    ),
    max_size=20,
).map(lambda items: sorted(items, key=lambda item: item[0]))


def model(told: Told, partition: TopicPartition) -> list[str | None]:
    owners: list[str | None] = [None] * END
    for at, about, owner in told:
        if about == partition:
            owners[at:] = [owner] * (END - at)
    return owners


@given(facts)
def test_every_millisecond_has_the_owner_that_was_told_last(told: Told) -> None:
    timeline = OwnershipTimeline(PARTITIONS, 0)
    for at, partition, owner in told:
        timeline.own(partition, owner, at)
    for partition in PARTITIONS:
        owners = model(told, partition)
        assert [timeline.owner_at(partition, ms) for ms in range(END)] == owners
        painted: list[str | None] = []
        for span in timeline.spans(partition, END):
            painted += [span.owner] * span.duration_ms
        assert painted == owners


@given(facts, st.integers(0, END), st.integers(0, END))
def test_longest_gap_is_the_longest_run_of_nobody(told: Told, one: int, other: int) -> None:
    start, end = sorted((one, other))
    timeline = OwnershipTimeline(PARTITIONS, 0)
    for at, partition, owner in told:
        timeline.own(partition, owner, at)
    longest = 0
    for partition in PARTITIONS:
        run = 0
        for owner in model(told, partition)[start:end]:
            run = run + 1 if owner is None else 0
            longest = max(longest, run)
    assert timeline.longest_gap_ms(start, end) == longest


def test_release_all_names_what_was_held() -> None:
    timeline = OwnershipTimeline(PARTITIONS, 0)
    timeline.own(PARTITIONS[0], "north", 5)
    timeline.own(PARTITIONS[1], "south", 5)
    assert timeline.release_all("south", 9) == (PARTITIONS[1],)
    assert timeline.owners() == {PARTITIONS[0]: "north", PARTITIONS[1]: None}


def test_a_partition_that_is_not_followed_is_ignored() -> None:
    timeline = OwnershipTimeline(PARTITIONS, 0)
    timeline.own(TopicPartition("other", 0), "north", 5)
    assert set(timeline.owners()) == set(PARTITIONS)
