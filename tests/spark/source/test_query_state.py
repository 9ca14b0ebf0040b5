"""The rules of a query's positions, over any order of what Spark and the group can do."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kohort.spark.checkpoint.manifest import Manifest
from kohort.spark.source.group_offsets import Topic
from kohort.spark.source.query_state import MembershipLostError, Progress
from kohort.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
PARTITIONS = [TopicPartition("t", number) for number in range(3)]


def started(positions: Mapping[TopicPartition, int]) -> Progress:
    progress = Progress("north")
    progress.assigned(positions, 1)
    progress.place(1, positions, positions)
    return progress


def test_a_manifest_names_partitions_without_news_too() -> None:
    batch = started({P0: 5, P1: 7}).offer({P0: 9, P1: 7}, None)
    assert batch == Manifest(1, "north", {P0: (5, 9), P1: (7, 7)}, batch=1)


def test_nothing_new_is_no_batch() -> None:
    assert started({P0: 5}).offer({P0: 5}, None) is None


def test_only_a_finished_batch_is_committed() -> None:
    progress = started({P0: 5})
    batch = progress.offer({P0: 9}, None)
    assert batch is not None
    assert progress.to_commit() == {}
    progress.boundary(batch)
    assert progress.to_commit() == {P0: 9}
    progress.committed({P0: 9})
    assert progress.to_commit() == {}


def test_what_a_drain_waits_for_is_said() -> None:
    progress = started({P0: 5, P1: 5})
    assert progress.undrained("") == "no batch is finished yet"
    batch = progress.offer({P0: 9}, None)
    assert batch is not None
    assert progress.undrained("") == "batch 1 is not reported as finished yet"
    progress.boundary(batch)
    asked = "the group has not accepted the commit of t-0 at 9: "
    assert progress.undrained("") == f"{asked}it has not answered yet"
    assert progress.undrained("rebalancing") == f"{asked}rebalancing"
    progress.lost([P0])
    assert progress.has_lost
    assert progress.undrained("").startswith("the group took t-0 away from 'north'")


def test_a_start_that_no_commit_names_is_committed_at_once() -> None:
    progress = Progress("north")
    progress.assigned([P0], 1)
    progress.place(1, {P0: 40}, {}, [P0])
    assert progress.to_commit() == {P0: 40}


def test_positions_of_an_earlier_generation_are_not_used() -> None:
    progress = Progress("north")
    progress.assigned([P0], 1)
    progress.revoked([P0])
    progress.assigned([P0], 2)
    progress.place(1, {P0: 3}, {P0: 3})
    assert progress.unplaced == {P0}


def test_an_open_batch_keeps_its_partitions_until_the_boundary() -> None:
    progress = started({P0: 5, P1: 7})
    batch = progress.offer({P0: 9, P1: 7}, None)
    assert batch is not None
    assert not progress.may_leave([P0, P1])
    assert progress.may_leave([P1])
    progress.boundary(batch)
    assert progress.may_leave([P0])


def test_a_leaving_partition_is_not_offered() -> None:
    progress = started({P0: 5, P1: 7})
    progress.leaving([P0])
    assert progress.staying == {P1}
    assert progress.offer({P0: 9, P1: 8}, None) == Manifest(1, "north", {P1: (7, 8)}, batch=1)


def test_losing_a_partition_of_the_open_batch_fails_the_query() -> None:
    progress = started({P0: 5})
    batch = progress.offer({P0: 9}, None)
    assert batch is not None
    progress.lost([P0])
    with pytest.raises(MembershipLostError, match="t-0 away from 'north'"):
        progress.boundary(batch)


def test_losing_a_finished_batch_before_its_commit_fails_the_query() -> None:
    progress = started({P0: 5})
    batch = progress.offer({P0: 9}, None)
    assert batch is not None
    progress.boundary(batch)
    progress.lost([P0])
    with pytest.raises(MembershipLostError, match="t-0 away from 'north'"):
        progress.boundary(batch)


def test_losing_partitions_between_batches_is_no_failure() -> None:
    progress = started({P0: 5})
    progress.lost([P0])
    progress.boundary(Manifest(1, "north", {P0: (0, 5)}))
    assert progress.owned == frozenset()
    assert progress.to_commit() == {}


def test_the_last_batch_of_an_earlier_run_moves_the_start() -> None:
    """After a restart Spark names the last finished batch, which the group may not know."""
    progress = Progress("north")
    progress.boundary(Manifest(7, "north", {P0: (5, 9), P1: (0, 4)}))
    progress.assigned([P0, P1], 8)
    assert progress.finished == {P0: 9, P1: 4}
    progress.place(8, {P0: 9, P1: 6}, {P0: 5, P1: 6})
    assert progress.to_commit() == {P0: 9}
    batch = progress.offer({P0: 10, P1: 10}, None)
    assert batch is not None
    assert batch.ranges == {P0: (9, 10), P1: (6, 10)}


def test_the_last_batch_is_finished_once() -> None:
    """Idle triggers name it again, also after the group was set back behind it."""
    progress = Progress("north")
    last = Manifest(7, "north", {P0: (5, 9)})
    progress.boundary(last)
    progress.assigned([P0], 8)
    progress.place(8, {P0: 2}, {P0: 2})
    progress.boundary(last)
    assert progress.positions == {P0: 2}


def test_a_note_says_whether_a_position_is_a_start() -> None:
    progress = Progress("north", "nonce")
    progress.topics = {"t": Topic("id", 2)}
    progress.assigned([P0, P1], 3)
    progress.place(3, {P0: 4, P1: 4}, {}, [P0, P1])
    assert progress.note(P0).batch == 0
    batch = progress.offer({P0: 9, P1: 4}, None)
    assert batch is not None
    progress.boundary(batch)
    assert [progress.note(each).batch for each in (P0, P1)] == [1, 0]
    note = progress.note(P0)
    assert (note.nonce, note.topic_id, note.count, note.epoch) == ("nonce", "id", 2, 3)


class TwoQueries(RuleBasedStateMachine):
    """Two queries of one group over three partitions: nothing is read twice, nothing is lost.

    The model plays Spark, the sink and the coordinator. A batch is in the sink when it is
    finished; revocations wait for the boundary; commits arrive.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queries = [Progress("north"), Progress("south")]
        self.open: list[Manifest | None] = [None, None]
        self.last = [Manifest(), Manifest()]
        self.owner: dict[TopicPartition, int] = {}
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.committed: dict[TopicPartition, int] = {}
        self.sink: list[tuple[TopicPartition, int]] = []
        self.epoch = 0

    @rule(partition=st.sampled_from(PARTITIONS), count=st.integers(1, 5))
    def produce(self, partition: TopicPartition, count: int) -> None:
        self.ends[partition] += count

    @rule(who=st.integers(0, 1), limit=st.one_of(st.none(), st.integers(1, 4)))
    def trigger(self, who: int, limit: int | None) -> None:
        """Spark finishes the open batch, asks for the next, and the commit goes out."""
        self.next_batch(who, limit)

    def next_batch(self, who: int, limit: int | None) -> None:
        self.finish(who)
        self.commit(who)
        self.place(who)
        batch = self.queries[who].offer(self.ends, limit)
        self.open[who] = batch

    def finish(self, who: int) -> None:
        batch = self.open[who]
        if batch is not None:
            for partition, (start, end) in batch.ranges.items():
                self.sink += [(partition, offset) for offset in range(start, end)]
            self.last[who], self.open[who] = batch, None
        self.queries[who].boundary(self.last[who])

    def commit(self, who: int) -> None:
        offsets = self.queries[who].to_commit()
        for partition, offset in offsets.items():
            assert self.owner[partition] == who
            assert offset >= self.committed.get(partition, 0)
            self.committed[partition] = offset
        self.queries[who].committed(offsets)

    def place(self, who: int) -> None:
        query = self.queries[who]
        known = {tp: self.committed[tp] for tp in query.unplaced if tp in self.committed}
        ends = {tp: end for tp, end in query.finished.items() if end > known.get(tp, -1)}
        query.place(query.epoch, {**dict.fromkeys(query.unplaced, 0), **known, **ends}, known)

    @rule(owners=st.lists(st.integers(0, 1), min_size=3, max_size=3))
    def rebalance(self, owners: list[int]) -> None:
        """Eager: each query gives up everything between two batches, then takes its new share."""
        for who, query in enumerate(self.queries):
            query.leaving(query.owned)
            if not query.may_leave(query.owned):
                self.finish(who)
            self.commit(who)
            query.revoked(query.owned)
        self.epoch += 1
        self.owner = dict(zip(PARTITIONS, owners, strict=True))
        for who, query in enumerate(self.queries):
            query.assigned([tp for tp in PARTITIONS if self.owner[tp] == who], self.epoch)

    @rule(partition=st.sampled_from(PARTITIONS), to=st.integers(0, 1), reads_on=st.booleans())
    def move(self, partition: TopicPartition, to: int, reads_on: bool) -> None:
        """Cooperative and KIP-848: what stays is read on, and nobody waits for anybody."""
        owner = self.owner.get(partition)
        if owner == to:
            return
        if owner is not None:
            loser = self.queries[owner]
            loser.leaving([partition])
            if not loser.may_leave([partition]):
                self.finish(owner)
            if reads_on:
                self.next_batch(owner, None)
            self.commit(owner)
            loser.revoked([partition])
            loser.assigned([], self.epoch)
        self.epoch += 1
        self.owner[partition] = to
        self.queries[to].assigned([partition], self.epoch)

    @precondition(lambda self: any(self.open))
    @rule(who=st.integers(0, 1))
    def crash(self, who: int) -> None:
        """A query dies before its batch reached the sink; its partitions wait for a rebalance."""
        self.queries[who] = Progress(self.queries[who]._operator)
        self.open[who] = None
        self.owner = {tp: owner for tp, owner in self.owner.items() if owner != who}

    @invariant()
    def the_sink_has_each_record_once(self) -> None:
        assert len(self.sink) == len(set(self.sink))

    @invariant()
    def the_sink_has_no_hole(self) -> None:
        for partition in PARTITIONS:
            offsets = sorted(offset for tp, offset in self.sink if tp == partition)
            assert offsets == list(range(len(offsets)))

    @invariant()
    def only_what_is_in_the_sink_is_committed(self) -> None:
        written = set(self.sink)
        for partition, offset in self.committed.items():
            assert offset == 0 or (partition, offset - 1) in written


TwoQueries.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestTwoQueries = TwoQueries.TestCase


@pytest.mark.parametrize(
    ("why", "said", "unsaid"),
    [
        ("another consumer has its group.instance.id x.", "another consumer has", "maxOffsets"),
        ("no heartbeat came within session.timeout.ms.", "no heartbeat came within", "too long"),
        ("", "maxOffsetsPerTrigger", "group.instance.id"),
    ],
)
def test_a_loss_says_why_the_member_is_out(why: str, said: str, unsaid: str) -> None:
    progress = started({P0: 5})
    batch = progress.offer({P0: 9}, None)
    assert batch is not None
    progress.lost([P0], why)
    with pytest.raises(MembershipLostError, match=said) as lost:
        progress.boundary(batch)
    assert unsaid not in str(lost.value)
