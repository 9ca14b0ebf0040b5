"""The heartbeat times of the KIP-848 member: the members of a group beat together (L31)."""

from __future__ import annotations

from itertools import pairwise
from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from kohort.group.member.config import MemberConfig
from tests.group.member.consumer.consumer_member import INTERVAL_MS, Stage, assignment, joining

WALL_MS = 1_795_000_000_000
PERIOD_MS = INTERVAL_MS + INTERVAL_MS // 64
SPREAD_MS = INTERVAL_MS // 32


def member(ahead_ms: int | None, member_id: str = "m", *, first_part: int = 1) -> Stage:
    """Return a member with a partition; the first heartbeat without changes is next."""
    config = MemberConfig(
        group_id="g",
        max_poll_interval_ms=10**9,
        first_heartbeat_part=first_part,
        wall_clock_ahead_ms=ahead_ms,
    )
    stage = joining(Stage(config, member_id=member_id))
    stage.answer(1, assignment(0), member_id=member_id)
    stage.called()
    stage.answer(1, member_id=member_id)
    return stage


def beats(stage: Stage, count: int) -> list[int]:
    """Return the member's heartbeat times, by its own clock; each response comes a little later."""
    found = []
    for _ in range(count):
        due = stage.member.next_deadline()
        assert due is not None
        stage.wait(due - stage.now)
        assert stage.requests
        found.append(stage.now)
        stage.wait(3)
        stage.answer(1, member_id=None)
    return found


@given(st.integers(0, INTERVAL_MS * 3), st.text(max_size=5), st.text(max_size=5))
def test_l31_members_whose_wall_clocks_agree_beat_together(
    later_ms: int, one: str, other: str
) -> None:
    """Their monotonic clocks differ; that of the second started `later_ms` later."""
    first, second = member(WALL_MS, one), member(WALL_MS + later_ms, other)
    moments = [at + WALL_MS for at in beats(first, 4)[1:]]
    others = [at + WALL_MS + later_ms for at in beats(second, 4)[1:]]
    assert moments[1] - moments[0] == moments[2] - moments[1] == PERIOD_MS
    apart = (others[0] - moments[0] + PERIOD_MS // 2) % PERIOD_MS - PERIOD_MS // 2
    assert abs(apart) < SPREAD_MS


def test_l31_other_groups_have_other_moments() -> None:
    moments = {crc32(f"group-{number}".encode()) % PERIOD_MS for number in range(100)}
    assert len(moments) > 90
    at = beats(member(WALL_MS), 2)[1] + WALL_MS
    assert (at - crc32(b"g")) % PERIOD_MS < SPREAD_MS


def test_l31_who_does_not_know_the_wall_clock_beats_by_its_own() -> None:
    found = beats(member(None), 4)
    assert {after - before for before, after in pairwise(found)} == {INTERVAL_MS + 3}


@given(st.integers(0, PERIOD_MS), st.integers(1, INTERVAL_MS))
def test_l31_no_pause_is_much_longer_or_shorter_than_asked(ahead_ms: int, interval: int) -> None:
    stage = member(WALL_MS + ahead_ms)
    for _ in range(5):
        due = stage.member.next_deadline()
        assert due is not None
        stage.wait(due - stage.now)
        stage.answer(1, interval_ms=interval)
        due = stage.member.next_deadline()
        assert due is not None
        assert max(interval // 64, 1) <= due - stage.now <= interval * 1.08 + 1


def bursts(found: list[int]) -> list[bool]:
    """Whether pauses were short from a common moment on, for each that came."""
    moment = (crc32(b"g") + crc32(b"m") % SPREAD_MS - WALL_MS) % PERIOD_MS
    first = INTERVAL_MS // 16
    shorts = []
    for at, after in pairwise(found):
        if (at - moment) % PERIOD_MS == 0:
            assert after - at in (first + 3, PERIOD_MS)
            shorts.append(after - at != PERIOD_MS)
    return shorts


def test_l31_pauses_are_short_again_when_the_others_hear_of_a_change() -> None:
    """At the first common moment after it, which is before its own turn."""
    stage = member(WALL_MS, first_part=16)
    beats(stage, 24)
    stage.wait(INTERVAL_MS * 2)
    stage.answer(1, assignment(0, 1), member_id=None)
    stage.called()
    stage.answer(1, member_id=None)
    assert bursts(beats(stage, 16))[:4] == [True, False, False, False]


def test_l31_who_is_new_listens_twice_as_long() -> None:
    """The others learn of a new member one moment later if the coordinator pauses that long."""
    stage = member(WALL_MS, first_part=16)
    assert bursts(beats(stage, 16))[:4] == [True, True, False, False]


@given(st.integers(0, PERIOD_MS), st.integers(1, 40))
def test_l31_no_common_moment_is_missed(ahead_ms: int, first_part: int) -> None:
    """For any pauses and acknowledgements, especially after a change."""
    stage = member(WALL_MS + ahead_ms, first_part=first_part)
    begin = stage.now
    found = [begin, *beats(stage, 40)]
    moment = (crc32(b"g") + crc32(b"m") % SPREAD_MS - WALL_MS - ahead_ms) % PERIOD_MS
    common = range(moment, found[-1], PERIOD_MS)
    missed = [at for at in common if at > begin and at not in found]
    assert all(any(0 < at - beat <= INTERVAL_MS // 64 + 3 for beat in found) for at in missed)


def test_l31_who_acknowledges_just_before_a_common_moment_beats_then_too() -> None:
    """In between another member may have made the coordinator decide."""
    stage = member(WALL_MS, first_part=16)
    beats(stage, 24)
    due = stage.member.next_deadline()
    assert due is not None
    stage.wait(due - stage.now)
    stage.wait(PERIOD_MS - INTERVAL_MS // 50)
    stage.answer(1, assignment(0, 1), member_id=None)
    stage.called()
    stage.answer(1, member_id=None)
    assert stage.member.next_deadline() == due + PERIOD_MS
