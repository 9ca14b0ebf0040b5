"""Where a query starts in a partition, in a table and over any history of a group."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kohort.spark.checkpoint.manifest import Manifest, trim
from kohort.spark.source.group_offsets import (
    GroupOffsets,
    Note,
    Topic,
    exclusive_notes,
    group_offsets,
)
from kohort.spark.source.query_state import Progress
from kohort.spark.source.start_positions import Known, Origin
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
OURS = Note(operator="north", nonce="ours", batch=3, epoch=5, count=2, began=1)
THEIRS = replace(OURS, operator="south", nonce="theirs")
BEGINNING = replace(OURS, batch=0, began=5)


def known(offset: int | None, note: Note | None, end: int | None, **more: object) -> Known:
    offsets = {} if offset is None else {P0: offset}
    notes = {} if note is None or offset is None else {P0: note}
    ends = {} if end is None else {P0: end}
    counts = {} if end is None else {"t": 2}
    facts = {
        "nonce": "ours",
        "ends": ends,
        "counts": counts,
        "has_placed": end is not None,
        "epoch": 5,
        "now_ms": 10**9,
        **more,
    }
    return Known(group=GroupOffsets(offsets, notes), **facts)  # type: ignore[arg-type]  # a table's facts


@pytest.mark.parametrize(
    ("offset", "note", "end", "origin", "warns"),
    [
        (None, None, None, Origin.STARTING, False),
        (7, None, None, Origin.GROUP, False),
        (None, None, 9, Origin.CHECKPOINT, False),
        (9, OURS, 9, Origin.GROUP, False),
        (12, THEIRS, 9, Origin.GROUP, False),  # another query went on
        (12, None, 9, Origin.GROUP, True),  # an operator skipped records
        (12, OURS, 9, Origin.GROUP, True),  # a checkpoint that was restored from a backup
        (12, replace(OURS, batch=0), 9, Origin.GROUP, False),  # killed as it began after a loss
        (5, OURS, 9, Origin.CHECKPOINT, False),  # killed between Spark's commit and the group's
        (5, None, 9, Origin.GROUP, True),  # kafka-consumer-groups --reset-offsets
        (5, THEIRS, 9, Origin.GROUP, True),
    ],
)
def test_one_order_of_what_is_believed(
    offset: int | None, note: Note | None, end: int | None, origin: Origin, warns: bool
) -> None:
    start = known(offset, note, end).start(P0)
    assert (start.origin, bool(start.warning)) == (origin, warns)


@pytest.mark.parametrize(
    ("note", "is_alone", "origin", "said"),
    [
        (OURS, True, Origin.CHECKPOINT, "reading again from 9 (positions=group continues from 12)"),
        (replace(OURS, exclusive=True), False, Origin.CHECKPOINT, "reading again from 9"),
        (OURS, False, Origin.GROUP, "does not read offsets 9 to 11 again (positions=checkpoint"),
        (None, True, Origin.GROUP, "another client or an operator has committed offset 12"),
        (THEIRS, True, Origin.GROUP, "query 'south' (checkpoint theirs, batch 3) has committed"),
    ],
)
def test_a_group_that_is_ahead_is_told_from_a_restored_checkpoint(
    note: Note | None, is_alone: bool, origin: Origin, said: str
) -> None:
    start = known(12, note, 9, is_alone=is_alone, batch=2).start(P0)
    assert start.origin is origin
    assert said in start.warning
    assert "this query's checkpoint ends at 9 (batch 2)" in start.warning


def test_a_group_in_which_another_member_went_on_is_worth_a_notice() -> None:
    start = known(12, THEIRS, 9).start(P0)
    assert "query 'south' (checkpoint theirs, batch 3) has committed offset 12" in start.notice


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        (5, "(positions=group reads offsets 5 to 8 again, positions=checkpoint skips them)"),
        (12, "(positions=checkpoint reads offsets 9 to 11 again, positions=group skips them)"),
    ],
)
def test_the_choices_say_what_is_skipped_and_what_is_repeated(offset: int, said: str) -> None:
    assert said in known(offset, THEIRS, 9).disagreement(P0).choices()


@pytest.mark.parametrize(
    ("policy", "note", "origin", "is_conflict"),
    [
        ("group", OURS, Origin.GROUP, False),
        ("group", THEIRS, Origin.GROUP, True),
        ("checkpoint", None, Origin.CHECKPOINT, True),
        ("fail", None, Origin.GROUP, True),
        ("fail", OURS, Origin.CHECKPOINT, False),
    ],
)
def test_positions_overrides(
    policy: str, note: Note | None, origin: Origin, is_conflict: bool
) -> None:
    start = known(5, note, 9, policy=policy).start(P0)
    assert (start.origin, start.is_conflict) == (origin, is_conflict)


def test_a_checkpoint_of_the_first_releases_has_no_nonce() -> None:
    assert known(5, None, 9, nonce="").start(P0).origin is Origin.CHECKPOINT


def test_an_added_partition_is_read_from_its_beginning() -> None:
    start = known(None, None, None, counts={"t": 2}).start(P2)
    assert (start.origin, start.warning) == (Origin.EARLIEST, "")


def test_a_query_that_was_given_nothing_so_far_has_not_begun() -> None:
    assert known(None, None, None, counts={"t": 2}).start(P0).origin is Origin.STARTING
    recorded = known(None, None, None, counts={"t": 2}, firsts={P0: 7})
    assert recorded.start(P0).origin is Origin.FIRST
    assert recorded.start(P2).origin is Origin.EARLIEST
    begun = GroupOffsets({P1: 4}, {P1: THEIRS})
    start = Known(group=begun, counts={"t": 2}, firsts={P0: 7}, epoch=7).start(P0)
    assert start.origin is Origin.EARLIEST
    assert "t-0: the group has no offset for it" in start.warning


def test_an_added_partition_is_known_by_the_notes_of_others() -> None:
    group = GroupOffsets({P0: 4, P1: 4}, {P0: BEGINNING, P1: BEGINNING})
    assert Known(group=group, epoch=5).start(P2).origin is Origin.EARLIEST


def test_an_added_partition_that_is_given_out_late_has_not_expired() -> None:
    """Batches that were finished meanwhile count it already, and nobody has begun it."""
    group = GroupOffsets({P0: 4, P1: 4}, dict.fromkeys((P0, P1), replace(OURS, count=3)))
    facts = Known(group=group, nonce="n", counts={"t": 3}, epoch=7)
    assert "the group has no offset for it" in facts.start(P2).warning
    start = replace(facts, added=frozenset({P2})).start(P2)
    assert (start.origin, start.warning) == (Origin.EARLIEST, "")


def test_an_offset_that_expired_is_read_from_the_beginning_with_a_warning() -> None:
    group = GroupOffsets({P1: 4}, {P1: THEIRS})
    start = Known(group=group, epoch=7).start(P0)
    assert start.origin is Origin.EARLIEST
    assert "t-0: the group has no offset for it" in start.warning


@pytest.mark.parametrize(
    "note", [BEGINNING, replace(BEGINNING, began=4, at_ms=10**9), replace(OURS, began=5)]
)
def test_members_that_begin_together_all_start_at_starting_offsets(note: Note) -> None:
    group = GroupOffsets({P1: 4}, {P1: note})
    assert Known(group=group, epoch=5, now_ms=10**9 + 1).start(P0).origin is Origin.STARTING


@pytest.mark.parametrize("place", [P0, P2])
def test_offsets_of_another_client_say_that_the_group_has_begun(place: TopicPartition) -> None:
    """P2 was not added to the topic: another client's offset tells of no number of partitions."""
    start = Known(group=GroupOffsets({P1: 4}), epoch=5).start(place)
    assert start.origin is Origin.EARLIEST
    assert "another program has committed offsets in it: startingOffsets" in start.warning


def test_offsets_of_a_topic_that_was_made_anew_do_not_count() -> None:
    old, new = replace(OURS, topic_id="old"), replace(OURS, topic_id="new")
    found = {P0: OffsetAndMetadata(7, old.to_text()), P1: OffsetAndMetadata(3, new.to_text())}
    assert group_offsets(found, {"t": Topic("new", 2)}).offsets == {P1: 3}
    assert group_offsets(found, {"t": Topic("", 2)}).offsets == {P0: 7, P1: 3}


def test_exclusive_queries_are_named_unless_it_is_this_one() -> None:
    note = replace(THEIRS, exclusive=True)
    group = GroupOffsets({P0: 1, P1: 1}, {P0: note, P1: note})
    assert exclusive_notes(group, "ours") == ["south"]
    assert exclusive_notes(group, "theirs") == []


NUMBERS = st.integers(-1, 2**31)
NOTES = st.builds(
    Note,
    operator=st.text(max_size=9),
    nonce=st.text(max_size=9),
    batch=NUMBERS,
    epoch=NUMBERS,
    topic_id=st.text(max_size=9),
    count=NUMBERS,
    began=NUMBERS,
    at_ms=NUMBERS,
    exclusive=st.booleans(),
    text=st.text(max_size=9),
)


@given(NOTES)
def test_a_note_survives_its_commit(note: Note) -> None:
    assert Note.from_text(note.to_text()) == note


@given(
    st.text()
    | st.sampled_from(["", "null", "[]", "{}", '{"kohort": 1}', '{"kohort":"","batch":"x"}'])
)
def test_any_metadata_of_other_clients_is_read(text: str) -> None:
    Note.from_text(text)


class AnyHistory(RuleBasedStateMachine):
    """Two queries with checkpoints over a topic that grows, at `latest`, with all that goes wrong.

    Whatever happens: a record that came after the group began is in a sink before the group's
    offset is behind it. And no checkpoint looks like an older copy, as none is restored.
    """

    def __init__(self) -> None:
        super().__init__()
        self.topics = {"t": Topic("id", 2)}
        self.ends = {P0: 0, P1: 0}
        self.begins: dict[TopicPartition, int] = {}
        self.group: dict[TopicPartition, OffsetAndMetadata] = {}
        self.sink: set[tuple[TopicPartition, int]] = set()
        self.owner: dict[TopicPartition, int] = {}
        self.epoch = 0
        self.queries: list[Progress] = [Progress("north", "n0"), Progress("south", "s0")]
        self.last = [Manifest(nonce="n0"), Manifest(nonce="s0")]
        self.open: list[Manifest | None] = [None, None]
        self.counts: list[dict[str, int]] = [{}, {}]
        self.placed = [False, False]
        self.firsts: list[dict[TopicPartition, int]] = [{}, {}]
        self.resumed: list[dict[TopicPartition, int]] = [{}, {}]
        # What each query's checkpoint named when its run began, and what it has placed since.
        self.named: list[set[TopicPartition]] = [set(), set()]
        self.continues = [False, False]
        self.has_begun = False
        # Partitions whose offset has expired since it was committed last.
        self.expired: set[TopicPartition] = set()
        self.now_ms = 0

    @rule(partition=st.integers(0, 2), count=st.integers(1, 5))
    def produce(self, partition: int, count: int) -> None:
        place = TopicPartition("t", partition)
        if place in self.ends:
            self.ends[place] += count

    @precondition(lambda self: P2 not in self.ends)
    @rule()
    def add_a_partition(self) -> None:
        self.ends[P2] = 0
        self.topics = {"t": Topic("id", 3)}
        if self.has_begun:
            self.begins[P2] = 0
        self.rebalance([self.owner.get(P0, 0), self.owner.get(P1, 0), 1])

    @rule(owners=st.lists(st.integers(0, 1), min_size=3, max_size=3))
    def rebalance(self, owners: list[int]) -> None:
        for who, query in enumerate(self.queries):
            self.finish(who)
            self.commit(who)
            query.revoked(query.owned)
        self.epoch += 1
        self.owner = {place: owners[place.partition] for place in self.ends}
        for who, query in enumerate(self.queries):
            query.assigned([p for p in self.owner if self.owner[p] == who], self.epoch)

    @precondition(lambda self: bool(self.owner))
    @rule(who=st.integers(0, 1))
    def trigger(self, who: int) -> None:
        self.finish(who)
        self.queries[who].boundary(self.last[who])
        self.learn(who, self.last[who])
        self.commit(who)
        self.place(who)
        batch = self.queries[who].offer(self.ends, None)
        if batch is None and not self.last[who].batch:
            self.start_empty(who)  # Spark always runs a first batch
        self.open[who] = batch

    def start_empty(self, who: int) -> None:
        query, known = self.queries[who], self.known(who)
        others = self.ends.keys() - query.positions.keys()
        firsts = {p: self.ends[p] for p in others if known.start(p).origin is Origin.STARTING}
        self.last[who] = query.offer_start(firsts)
        query.finish(self.last[who])

    @precondition(lambda self: not all(each.batch for each in self.last))
    @rule(who=st.integers(0, 1))
    def trigger_before_the_assignment(self, who: int) -> None:
        if not self.last[who].batch and not self.queries[who].positions:
            self.queries[who].topics = self.topics
            self.start_empty(who)

    def finish(self, who: int) -> None:
        batch = self.open[who]
        if batch is not None:
            self.write(batch.ranges)
            self.queries[who].finish(batch)
            self.last[who], self.open[who] = batch, None

    def write(self, ranges: object) -> None:
        assert isinstance(ranges, dict)
        for place, (start, end) in ranges.items():
            self.sink |= {(place, offset) for offset in range(start, end)}

    def learn(self, who: int, batch: Manifest) -> None:
        for name, topic in batch.topics.items():
            self.counts[who][name] = max(topic.count, self.counts[who].get(name, 0))
        self.placed[who] = self.placed[who] or bool(batch.ranges)
        self.firsts[who].update(batch.firsts)
        self.named[who] |= batch.ranges.keys()

    def commit(self, who: int) -> None:
        query = self.queries[who]
        for place, offset in query.to_commit().items():
            self.group[place] = OffsetAndMetadata(offset, query.note(place, self.now_ms).to_text())
            self.expired.discard(place)
        query.committed(query.to_commit())

    def place(self, who: int) -> None:
        query = self.queries[who]
        query.topics = self.topics
        facts = self.known(who)
        group = facts.group
        origins = {each: facts.start(each).origin for each in query.unplaced}
        self.check_not_restored(facts)
        values = {
            Origin.GROUP: group.offsets,
            Origin.CHECKPOINT: dict(query.finished),
            Origin.EARLIEST: dict.fromkeys(self.ends, 0),
            Origin.STARTING: self.ends,
            Origin.FIRST: self.firsts[who],
        }
        positions = {each: values[origin][each] for each, origin in origins.items()}
        starts = [p for p, o in origins.items() if o not in (Origin.GROUP, Origin.CHECKPOINT)]
        query.began = self.epoch if group.began is None else group.began
        query.place(self.epoch, positions, group.offsets, starts)
        self.named[who] |= query.positions.keys()
        for each, origin in origins.items():
            if origin in (Origin.STARTING, Origin.FIRST):
                # When its offset has expired, and all that are left are starts of a moment ago,
                # nothing tells a new query that the group had begun: it begins again.
                is_told = bool(group.offsets) and each not in self.expired
                before = self.begins.get(each, positions[each]) if is_told else positions[each]
                self.begins[each] = min(before, positions[each])
        if origins:
            self.has_begun = self.placed[who] = True
            self.counts[who].setdefault("t", self.topics["t"].count)
            self.commit(who)

    def check_not_restored(self, facts: Known) -> None:
        for each in (facts.ends.keys() | facts.unnamed) & facts.group.offsets.keys():
            found = facts.disagreement(each)
            assert not found.is_restored, found

    def known(self, who: int) -> Known:
        query = self.queries[who]
        return Known(
            group=group_offsets(self.group, self.topics),
            nonce=query.nonce,
            ends=query.finished,
            counts=self.counts[who],
            has_placed=self.placed[who],
            firsts=self.firsts[who],
            resumed=self.resumed[who],
            epoch=self.epoch,
            now_ms=self.now_ms,
            batch=self.last[who].batch,
            unnamed=frozenset(self.ends.keys() - self.named[who] if self.continues[who] else ()),
        )

    @precondition(lambda self: bool(self.owner))
    @rule(who=st.integers(0, 1), is_in_sink=st.booleans())
    def kill_and_restart(self, who: int, is_in_sink: bool) -> None:
        """The commit to the group is lost, or the batch is repeated from Spark's log."""
        batch, nonce = self.open[who], self.queries[who].nonce
        self.queries[who] = Progress(self.queries[who]._operator, nonce)
        self.counts[who], self.resumed[who], self.open[who] = {}, {}, None
        self.placed[who], self.firsts[who], self.named[who] = False, {}, set()
        if batch is not None and is_in_sink:
            self.write(batch.ranges)
            self.last[who] = batch
        elif batch is not None:
            self.learn(who, batch)
            group = group_offsets(self.group, self.topics)
            starts = {place: start for place, (start, _) in batch.ranges.items()}
            self.check_not_restored(Known(group=group, nonce=nonce, ends=starts))
            offsets = group.offsets
            self.write(trim(batch.ranges, offsets))
            self.resumed[who] = {
                p: offsets[p] for p, at in batch.ranges.items() if offsets.get(p, -1) >= at[0]
            }
            self.queries[who].replay(batch)
            self.queries[who].finish(batch)
            self.last[who] = batch
        self.queries[who].boundary(self.last[who])
        self.learn(who, self.last[who])
        self.continues[who] = bool(self.last[who].ranges)
        other = self.queries[1 - who]
        self.finish(1 - who)
        self.commit(1 - who)
        other.revoked(other.owned)
        self.epoch += 1
        for each, query in enumerate(self.queries):
            query.assigned([p for p in self.owner if self.owner[p] == each], self.epoch)

    @rule(partition=st.integers(0, 2))
    def expire(self, partition: int) -> None:
        """An offset that is older than offsets.retention.minutes is gone."""
        self.now_ms += 7 * 86_400_000
        if self.group.pop(TopicPartition("t", partition), None) is not None:
            self.expired.add(TopicPartition("t", partition))

    @rule(partition=st.integers(0, 2), offset=st.integers(0, 5))
    def reset(self, partition: int, offset: int) -> None:
        """An operator sets the group back, while no query runs."""
        place = TopicPartition("t", partition)
        if place in self.group and offset <= self.group[place].offset and not any(self.open):
            self.group[place] = OffsetAndMetadata(offset)
            self.kill_and_restart(0, True)
            self.kill_and_restart(1, True)

    @invariant()
    def nothing_is_skipped(self) -> None:
        for place, at in self.group.items():
            for offset in range(self.begins.get(place, 0), at.offset):
                assert (place, offset) in self.sink, f"{place} {offset}"

    @invariant()
    def no_query_is_ahead_of_the_sinks(self) -> None:
        for query in self.queries:
            for place, at in query.positions.items():
                for offset in range(self.begins.get(place, at), at):
                    assert (place, offset) in self.sink, f"{place} {offset}"


AnyHistory.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestAnyHistory = AnyHistory.TestCase
