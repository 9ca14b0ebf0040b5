"""Every order of events of groups of one; tests/system/simulation has the larger ones."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager

import pytest

from kohort.group.member.draft import join
from kohort.group.member.draft.session import DraftMemberDecision
from kohort.group.member.draft.table import DRAFT_MEMBER
from kohort.group.member.events import HeartbeatAnswered
from kohort.values import replace
from tests.simulation.exploring import PROTOCOLS, SmallGroup, explore
from tests.simulation.exploring.state import State
from tests.simulation.planting.bug import instead
from tests.simulation.planting.catching import bugs

MOST = 100_000


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("perturbations", [0, 1])
@pytest.mark.timeout(300)
def test_a_small_group_is_right_in_every_order(protocol: str, perturbations: int) -> None:
    """S1, S3, S13 in every state; L1: from each of them the group can settle."""
    found = explore(SmallGroup(PROTOCOLS[protocol], 1, 2, perturbations), MOST)
    assert found.violation == "", found.path
    assert found.is_complete


# ------------------------------------------------------------------------------ it does find bugs


def _by_name(name: str) -> AbstractContextManager[None]:
    return next(planted for planted in bugs() if planted.name == name).plant()


def _join_and_keep(change: DraftMemberDecision, _answer: HeartbeatAnswered) -> None:
    change.session = replace(change.session, consuming=False)
    join.stop(change, "the application is not asked")


def _stay(_change: DraftMemberDecision, _answer: HeartbeatAnswered) -> None:
    """Go on reading, whatever the coordinator says."""


_PLANTED = [
    ("given twice", "classic", "S1"),
    ("join before revoke", "classic", "S1"),
    ("assignment unwritten", "classic", "L1"),
    ("take before give", "cooperative", "S1"),
    ("no second round", "cooperative", "L1"),
    ("target at once", "consumer", "S1"),
    ("member unwritten", "consumer", "L1"),
    ("target at once", "migration", "S1"),
]


@pytest.mark.parametrize(("name", "protocol", "rule"), _PLANTED)
def test_a_planted_bug_is_found(name: str, protocol: str, rule: str) -> None:
    with _by_name(name):
        found = explore(SmallGroup(PROTOCOLS[protocol], 2, 2, 0), MOST)
    assert found.violation.startswith(rule), found
    assert found.path


@pytest.mark.parametrize(("handler", "rule"), [(_join_and_keep, "S13"), (_stay, "L1")])
def test_a_bug_planted_into_the_draft_protocol_is_found(handler: object, rule: str) -> None:
    planted = instead(DRAFT_MEMBER, HeartbeatAnswered, "stop_consumption", handler)  # type: ignore[arg-type]  # one of the two above
    with planted():
        found = explore(SmallGroup(PROTOCOLS["draft"], 2, 2, 0), MOST)
    assert found.violation.startswith(rule), found


def test_a_path_is_a_shortest_one_and_can_be_followed() -> None:
    with _by_name("given twice"):
        model = SmallGroup(PROTOCOLS["classic"], 2, 2, 0)
        found = explore(model, MOST)
        state = model.first()
        for what in found.path:
            assert model.wrong(state) == ""
            state = dict([*model.steps(state), *model.perturbations(state)])[what]
        assert model.wrong(state) == found.violation


# -------------------------------------------------------------------- which states are the same


class _Compared(SmallGroup):
    """Works each state's steps out whenever it is met, not only the first time."""

    def __init__(self, protocol: str, perturbations: int) -> None:
        super().__init__(PROTOCOLS[protocol], 2, 2, perturbations)
        self._after: dict[Hashable, frozenset[Hashable]] = {}
        self.met_again = 0

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for what, after in super().steps(state):
            self._compare(after)
            yield what, after

    def perturbations(self, state: State) -> Iterator[tuple[str, State]]:
        for what, after in super().perturbations(state):
            self._compare(after)
            yield what, after

    def _compare(self, state: State) -> None:
        key = self.key(state)
        after = frozenset(self.key(each) for _, each in super().steps(state))
        after |= {self.key(each) for _, each in super().perturbations(state)}
        known = self._after.setdefault(key, after)
        assert known == after, "two states have one key, and are not the same"
        self.met_again += known is not after


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_states_that_count_as_one_lead_to_the_same_states(protocol: str) -> None:
    """However a state was reached: ids, epochs and tokens differ, what can happen does not."""
    model = _Compared(protocol, 1)
    explore(model, 3_000)
    assert model.met_again > 2_500


def test_members_may_change_places() -> None:
    model = SmallGroup(PROTOCOLS["classic"], 3, 2, 0)
    after = {what: model.key(state) for what, state in model.steps(model.first())}
    assert set(after) == {"0 starts", "1 starts", "2 starts"}
    assert len(set(after.values())) == 1


# ---------------------------------------------------------------------- the search by itself


class _Stairs:
    """Down one by one, or two at once; whoever stands on 1 can go nowhere."""

    def __init__(self, top: int, *, forbidden: int = -1, jumps: bool = False) -> None:
        self._top, self._forbidden, self._jumps = top, forbidden, jumps

    def first(self) -> int:
        return self._top

    def steps(self, state: int) -> list[tuple[str, int]]:
        by = {"one": 1, "two": 2} if state > 1 else {}
        return [(what, state - each) for what, each in by.items()]

    def perturbations(self, state: int) -> list[tuple[str, int]]:
        return [("jump", 0)] if state == 1 and self._jumps else []

    def key(self, state: int) -> int:
        return state

    def wrong(self, state: int) -> str:
        return "forbidden" if state == self._forbidden else ""

    def is_settled(self, state: int) -> bool:
        return state == 0


@pytest.mark.parametrize("jumps", [False, True])
def test_a_state_from_which_there_is_no_way_to_rest_is_found(jumps: bool) -> None:
    """Also where something that goes wrong would help."""
    found = explore(_Stairs(5, jumps=jumps), 100)
    assert found.is_complete
    assert found.states == 6
    assert found.violation.startswith("L1")
    assert sum({"one": 1, "two": 2}[what] for what in found.path) == 4
    assert len(found.path) == 2


def test_what_was_not_looked_at_counts_as_good() -> None:
    found = explore(_Stairs(50), 20)
    assert not found.is_complete
    assert (found.states, found.violation) == (20, "")


def test_a_broken_rule_ends_the_search() -> None:
    found = explore(_Stairs(50, forbidden=45), 1000)
    assert found.violation == "forbidden"
    assert found.path.count("two") == 2
    assert len(found.path) == 3
