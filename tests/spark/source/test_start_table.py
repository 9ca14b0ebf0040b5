"""The table of decision 0024: a partition for which the group has an offset, row by row."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from kohort.spark.checkpoint.manifest import Manifest
from kohort.spark.options.source import parse_options
from kohort.spark.source.exclusive import ExclusiveGroupError, check_newcomer
from kohort.spark.source.group_offsets import GroupOffsets, Note, Topic
from kohort.spark.source.start_positions import Known, Origin, Policy, Start
from kohort.types import TopicPartition
from kohort.values import replace

P0, P1, P4 = (TopicPartition("t", number) for number in (0, 1, 4))
# The checkpoint's last batch is the 5th.
EARLIER = Note(operator="north", nonce="ours", batch=5, epoch=5, count=5, began=1)
LATER = replace(EARLIER, batch=7)
BEGUN = replace(EARLIER, batch=0)
THEIRS = replace(LATER, operator="south", nonce="theirs")
ALONE = replace(LATER, exclusive=True)

GROUP, CHECKPOINT, EARLIEST = Origin.GROUP, Origin.CHECKPOINT, Origin.EARLIEST


def started(
    checkpoint: str, note: Note | None, policy: Policy = None, *, is_alone: bool = False
) -> Start:
    """Where a query starts in a partition in which the group is at 12."""
    return Known(
        group=GroupOffsets({P0: 12}, {} if note is None else {P0: note}),
        nonce="ours",
        ends={P0: 9} if checkpoint == "knows it" else {},
        counts={} if checkpoint == "empty" else {"t": 5},
        has_placed=checkpoint != "empty",
        epoch=6,
        policy=policy,
        batch=0 if checkpoint == "empty" else 5,
        is_alone=is_alone,
        unnamed=frozenset({P0}) if checkpoint == "does not know it" else frozenset(),
    ).start(P0)


@pytest.mark.parametrize("note", [EARLIER, LATER, BEGUN, THEIRS, ALONE, None])
@pytest.mark.parametrize("policy", [None, "group", "checkpoint", "fail"])
@pytest.mark.parametrize("is_alone", [False, True])
def test_without_a_checkpoint_the_group_counts(
    note: Note | None, policy: Policy, is_alone: bool
) -> None:
    assert started("empty", note, policy, is_alone=is_alone) == Start(GROUP)


@pytest.mark.parametrize(
    ("checkpoint", "note", "shared", "alone"),
    [
        ("knows it", LATER, (GROUP, True), (CHECKPOINT, True)),
        ("knows it", ALONE, (CHECKPOINT, True), (CHECKPOINT, True)),
        ("knows it", BEGUN, (GROUP, False), (GROUP, False)),
        ("knows it", THEIRS, (GROUP, False), (GROUP, True)),
        ("knows it", None, (GROUP, True), (GROUP, True)),
        ("does not know it", LATER, (GROUP, True), (EARLIEST, True)),
        ("does not know it", ALONE, (EARLIEST, True), (EARLIEST, True)),
        ("does not know it", EARLIER, (GROUP, False), (GROUP, False)),
        ("does not know it", BEGUN, (GROUP, False), (GROUP, False)),
        ("does not know it", THEIRS, (GROUP, False), (GROUP, True)),
        ("does not know it", None, (GROUP, False), (GROUP, True)),
    ],
)
def test_a_group_that_is_ahead_of_a_checkpoint(
    checkpoint: str, note: Note | None, shared: tuple[Origin, bool], alone: tuple[Origin, bool]
) -> None:
    for is_alone, expected in ((False, shared), (True, alone)):
        start = started(checkpoint, note, is_alone=is_alone)
        assert (start.origin, bool(start.warning)) == expected


@pytest.mark.parametrize("note", [LATER, BEGUN, THEIRS, ALONE, None])
@pytest.mark.parametrize("is_alone", [False, True])
def test_positions_decides_where_the_checkpoint_ends_before_the_group(
    note: Note | None, is_alone: bool
) -> None:
    assert started("knows it", note, "checkpoint", is_alone=is_alone).origin is CHECKPOINT
    assert started("knows it", note, "group", is_alone=is_alone).origin is GROUP
    assert started("knows it", note, "fail", is_alone=is_alone).is_conflict


@pytest.mark.parametrize(
    ("note", "is_alone", "is_of_the_checkpoint"),
    [
        (LATER, False, True),
        (LATER, True, True),
        (EARLIER, False, False),
        (EARLIER, True, False),
        (BEGUN, True, False),
        (THEIRS, False, False),  # a sibling's partition
        (THEIRS, True, True),
        (None, False, False),
        (None, True, True),
    ],
)
def test_positions_says_where_a_partition_starts_that_the_checkpoint_does_not_know(
    note: Note | None, is_alone: bool, is_of_the_checkpoint: bool
) -> None:
    start = started("does not know it", note, "checkpoint", is_alone=is_alone)
    assert start.origin is (EARLIEST if is_of_the_checkpoint else GROUP)
    assert bool(start.warning) == is_of_the_checkpoint
    assert started("does not know it", note, "group", is_alone=is_alone).origin is GROUP
    asked = started("does not know it", note, "fail", is_alone=is_alone)
    assert asked.is_conflict == is_of_the_checkpoint


@pytest.mark.parametrize(
    ("note", "policy", "is_alone", "said"),
    [
        (LATER, None, True, "from the partition's beginning (positions=group continues from 12)"),
        (LATER, None, False, "before 12 (positions=checkpoint reads the partition from its"),
        (THEIRS, None, True, "query 'south' (checkpoint theirs, batch 7) has committed offset 12"),
        (None, None, True, "another client or an operator has committed offset 12"),
        (LATER, "checkpoint", False, "as positions is checkpoint, it is read from its beginning"),
    ],
)
def test_a_warning_names_the_offset_and_the_start(
    note: Note | None, policy: Policy, is_alone: bool, said: str
) -> None:
    warning = started("does not know it", note, policy, is_alone=is_alone).warning
    assert warning.startswith("t-0: ")
    assert "this query's checkpoint does not know the partition (batch 5)" in warning
    assert said in warning


def test_the_choices_for_a_partition_that_the_checkpoint_does_not_know() -> None:
    known = Known(group=GroupOffsets({P0: 12}, {P0: LATER}), nonce="ours", batch=5)
    assert "(positions=checkpoint reads the partition from its beginning, positions=group " in (
        known.disagreement(P0).choices()
    )


@pytest.mark.parametrize(
    ("place", "note", "is_refused"),
    [
        (P0, THEIRS, True),
        (P4, THEIRS, True),  # added since, and read by another query that reads everything
        (P4, replace(THEIRS, batch=0), False),  # begun and not read
        (P4, LATER, False),
        (P1, THEIRS, False),  # shared with a member of the group before
        (TopicPartition("new", 0), THEIRS, False),  # the subscription may have been widened
    ],
)
def test_a_query_that_only_commits_refuses_what_another_has_read_since(
    monkeypatch: pytest.MonkeyPatch, place: TopicPartition, note: Note, is_refused: bool
) -> None:
    monkeypatch.setattr("kohort.spark.source.exclusive.wait_until_empty", lambda *_: ())
    options = {
        "kafka.bootstrap.servers": "h:1",
        "kafka.group.id": "g",
        "subscribe": "t",
        "groupmode": "commitOnly",
    }
    checkpoint = Manifest(-1, "north", {P0: (0, 9)}, 5, "ours", {"t": Topic("", 4)})
    group = GroupOffsets({place: 12}, {place: note})

    def check(checkpoint: Manifest, **more: str) -> None:
        check_newcomer(parse_options({**options, **more}), group, "ours", checkpoint)

    check(Manifest(nonce="ours"))
    check(checkpoint, positions="checkpoint")
    refusal = pytest.raises(ExclusiveGroupError, match="query south has committed to group g")
    with refusal if is_refused else nullcontext():
        check(checkpoint)
