"""A reader of the log trusts its state only when nothing can be missing from it."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.region.errors import (
    ForkedSnapshotError,
    LogGapError,
    NewerRecordError,
    RegionRecordError,
)
from kohort.region.machines.coding import FORMAT, encode
from kohort.region.machines.fold import fold_in
from kohort.region.machines.reader import Reader
from kohort.region.machines.records import (
    Claim,
    Contribution,
    OperatorId,
    RegionPartition,
    RegionRecord,
    Snapshot,
    Trimmed,
)
from kohort.region.machines.snapshot import digest, dump, load
from kohort.region.machines.state import RegionState
from kohort.simulation.regions.running import run_world
from kohort.simulation.regions.scenario import draw
from kohort.simulation.regions.world import RegionWorld
from kohort.values import replace
from tests.region.machines.test_fold import DONE, DRAINED, GIVEN, TWO, A, P, Q, folded

Entry = tuple[bytes, bytes | None]


def written(records: tuple[RegionRecord, ...]) -> list[Entry]:
    return [encode(each, str(index)) for index, each in enumerate(records)]


def snapshot_of(state: RegionState) -> Snapshot:
    text = dump(state)
    return Snapshot(state.epoch, state.controller, state.offset, text, digest(text))


def taken(entries: dict[int, Entry], end: int, reader: Reader | None = None) -> Reader:
    reader = reader or Reader()
    for offset in sorted(entries):
        reader.take(offset, *entries[offset])
    reader.reach(end)
    return reader


LOG = dict(enumerate(written(GIVEN)))
END = len(GIVEN)


def with_snapshot() -> tuple[dict[int, Entry], RegionState]:
    """A log whose snapshot replaces everything before, with the tombstones that say so."""
    state = folded(GIVEN)
    tail: list[Entry] = written((snapshot_of(state),))
    tail += [(key, None) for key, _ in LOG.values()]
    tail += written((Trimmed(1, "c", len(LOG)),))
    entries = {**LOG, **dict(enumerate(tail, END))}
    return entries, taken(entries, len(entries)).state or RegionState()


def test_a_whole_log_is_trusted_at_its_end() -> None:
    reader = Reader()
    assert reader.state is None
    assert taken(LOG, END, reader).state == folded(GIVEN)


def test_a_state_comes_back_from_its_text() -> None:
    for records in (TWO, DRAINED, GIVEN, DONE):
        assert load(dump(folded(records))) == folded(records)


@given(at=st.integers(0, 5_000), bit=st.integers(0, 7))
def test_a_damaged_snapshot_is_a_named_error_or_a_state(at: int, bit: int) -> None:
    text = bytearray(dump(folded(GIVEN)).encode())
    text[at % len(text)] ^= 1 << bit
    with suppress(RegionRecordError):
        load(text.decode("utf-8", "replace"))


def test_after_a_snapshot_what_it_replaces_may_go_in_any_order() -> None:
    entries, state = with_snapshot()
    end = len(entries)
    for gone in range(END + 1):
        left = {at: entry for at, entry in entries.items() if at >= gone}
        assert taken(left, end).state == state
        without = {at: entry for at, entry in left.items() if not END < at < end - 1}
        assert taken(without, end).state == state  # the tombstones are gone too


def test_without_the_trim_record_removed_tombstones_are_a_gap() -> None:
    """Interleaving: snapshot, tombstones, everybody stops for a day, the cleaner takes both."""
    entries, _ = with_snapshot()
    end = len(entries)
    left = {at: entry for at, entry in entries.items() if at == END}
    with pytest.raises(LogGapError, match=f"missing its record at offset {END + 1}"):
        taken({}, end, taken(left, end))


def test_a_gap_that_a_newer_snapshot_covers_is_read_past() -> None:
    """The reader is in the middle when records go that it has not read."""
    entries, state = with_snapshot()
    reader = Reader()
    for offset in range(4):
        reader.take(offset, *entries[offset])
    reader.reach(END)
    assert reader.state is None
    rest = {at: entry for at, entry in entries.items() if at >= END}
    assert taken(rest, len(entries), reader).state == state


def test_a_gap_that_stays_is_an_error_by_name() -> None:
    left = {at: entry for at, entry in LOG.items() if at != 5}
    reader = taken(left, END)
    assert reader.state is None
    with pytest.raises(LogGapError, match="missing its record at offset 5"):
        reader.reach(END)


def test_a_follower_that_loses_records_reads_on_to_a_snapshot() -> None:
    reader = taken({at: LOG[at] for at in range(4)}, 4)
    assert reader.state is not None
    entries, state = with_snapshot()
    rest = {at: entry for at, entry in entries.items() if at >= END}
    assert taken(rest, len(entries), reader).state == state


def test_a_snapshot_that_is_not_the_fold_is_a_fork() -> None:
    forged = snapshot_of(fold_in(folded(DRAINED), len(DRAINED), None)[0])
    reader = taken(LOG, END)
    with pytest.raises(ForkedSnapshotError, match="is not what the records before"):
        reader.take(END, *encode(forged, "x"))


def test_the_snapshot_that_covers_most_is_taken_not_the_last_one() -> None:
    """A controller that stood still writes an old snapshot after a newer one."""
    entries, _ = with_snapshot()
    end = len(entries)
    late = encode(snapshot_of(folded(TWO)), "late")
    left = {at: entry for at, entry in entries.items() if at >= END}
    reader = taken({**left, end: late}, end + 1)
    assert reader.state is not None
    assert reader.state.offset == end + 1


def test_foreign_and_damaged_records_are_passed_over_by_all() -> None:
    reader = taken(LOG, END)
    facts = reader.take(END, b"parade/x/1", b"\x00\xff")
    assert [each.is_refused for each in facts] == [True]
    assert reader.state is not None
    assert reader.state.offset == END + 1
    assert taken({**LOG, END: (b"parade/x/1", b"\x00\xff")}, END + 1).state == reader.state


def test_a_record_of_a_newer_version_stops_the_reader() -> None:
    key, value = encode(Claim(A, 9, frozenset({P})), "1")
    newer = json.dumps({**json.loads(value), "v": FORMAT + 1}).encode()
    with pytest.raises(NewerRecordError):
        taken(LOG, END).take(END, key, newer)


def test_a_copy_under_the_same_key_would_leave_a_gap() -> None:
    """So each send has a key of its own: compaction takes the first of two equal keys."""
    copy = LOG[7]
    entries = {**LOG, END: copy}
    del entries[7]
    reader = taken(entries, END + 1)
    with pytest.raises(LogGapError):
        reader.reach(END + 1)


def test_removable_names_keys_that_are_still_there() -> None:
    entries, _ = with_snapshot()
    reader = taken(LOG, END)
    assert reader.removable(3) == [LOG[at][0] for at in range(3)]
    assert [key.split(b"/")[0] for key in taken(entries, len(entries)).removable(99)] == [
        b"snapshot",
        b"trimmed",
    ]


def _log(seed: int) -> list[Entry]:
    """Return the log of a simulated region, with snapshots and trims."""
    world = RegionWorld(replace(draw(seed), snapshot_every=15))
    assert run_world(world).is_ok
    return world.log.everything


@pytest.fixture(scope="module")
def logs() -> list[list[Entry]]:
    return [_log(seed) for seed in range(6)]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_compaction_of_a_log_folds_to_the_same(
    logs: list[list[Entry]], data: st.DataObject
) -> None:
    """At any length of the log, whatever the cleaner has taken by then and takes next."""
    log = data.draw(st.sampled_from(logs))
    end = data.draw(st.integers(1, len(log)))
    while log[end - 1][1] is None:
        end += 1  # a batch with tombstones ends with its trim, and arrives as a whole
    whole = taken(dict(enumerate(log[:end])), end).state
    last = {key: offset for offset, (key, _) in enumerate(log[:end])}
    until = data.draw(st.integers(0, end))
    takes_tombstones = data.draw(st.booleans())
    left = {
        offset: (key, value)
        for offset, (key, value) in enumerate(log[:end])
        if offset >= until or (last[key] == offset and not (value is None and takes_tombstones))
    }
    assert whole is not None
    assert taken(left, end).state == whole


def test_the_fold_of_a_contribution_survives_its_snapshot() -> None:
    state = folded(GIVEN)
    again = load(dump(state))
    assert again.drain == state.drain
    assert isinstance(next(iter(again.drain.contributions.values())), Contribution)  # type: ignore[union-attr]  # there is one
    assert again.partition(Q) == state.partition(Q)
    assert again.active(OperatorId("b", "1")) == state.active(OperatorId("b", "1"))
    assert RegionPartition("t", "id", 0) in again.partitions
