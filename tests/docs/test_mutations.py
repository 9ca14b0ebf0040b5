"""For every rule with a test one change of our code is known that the test notices."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

import mutations
import rules

# Of the changes one part is tried here; tests/system/simulation/test_mutations.py tries them all.
PARTS = 64
EVERY = mutations.changes()


def test_every_rule_that_has_a_test_has_a_change() -> None:
    """Or a reason; for neither a rule without tests needs one."""
    every = {rule.id for section in rules.sections().values() for rule in section}
    tested = rules.proofs().keys() & every
    assert EVERY.keys() & mutations.reasons().keys() == set()
    assert sorted(EVERY.keys() | mutations.reasons().keys()) == sorted(tested)


def test_no_rule_is_in_two_files() -> None:
    named = [rule for rule, _ in mutations.entries()]
    assert [rule for rule in named if named.count(rule) > 1] == []


def test_every_change_fits_the_code() -> None:
    """Where the code has changed, find another change that a test of the rule notices."""
    unfit = [f"{each.rule}: {each.file}" for each in EVERY.values() if not each.is_applicable]
    assert unfit == []


def test_the_test_of_a_change_is_one_of_the_rules_and_in_the_first_tier() -> None:
    for change in EVERY.values():
        path, _, name = change.test.partition("::")
        assert not path.startswith("tests/system/"), change.rule
        assert rules.Proof(path, name.partition("[")[0]) in rules.proofs()[change.rule], change.rule
        assert change.breaks.endswith("."), change.rule


def test_a_part_is_noticed() -> None:
    part = mutations.part(list(EVERY.values()), 0, PARTS)
    outcomes = mutations.run(part)
    assert [outcome for outcome in outcomes if not outcome.noticed] == []


def test_the_parts_are_all_and_none_is_tried_twice() -> None:
    every = list(EVERY.values())
    parts = [mutations.part(every, number, PARTS) for number in range(PARTS)]
    assert sorted(change.rule for some in parts for change in some) == sorted(EVERY)


def ended(code: int, *lines: str) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], code, "\n".join(lines), "")


@pytest.mark.parametrize(
    ("words", "noticed"),
    [
        ("assert 1 == 2", True),
        ("AssertionError: words of the test", True),
        ("Failed: DID NOT RAISE <class 'ValueError'>", True),
        ("kohort.errors.RemoteProtocolError: ends too early", True),
        ("ImportError: cannot import name 'x'", False),
        ("NameError: name 'x' is not defined", False),
        ("Failed: Timeout (>120.0s) from pytest-timeout.", False),
    ],
)
def test_only_an_assertion_or_an_error_of_ours_counts(words: str, noticed: bool) -> None:
    found, said = mutations.judge(ended(1, f"FAILED tests/test_x.py::test_y - {words}"))
    assert (found, said) == (noticed, words)


def test_a_test_that_passes_or_cannot_run_notices_nothing() -> None:
    assert mutations.judge(ended(0)) == (False, "survives")
    assert mutations.judge(ended(2, "ERROR tests/test_x.py - SyntaxError"))[0] is False
    assert mutations.judge(ended(4))[0] is False


def test_a_change_of_what_is_not_there_or_is_there_twice_does_not_fit() -> None:
    fits = next(iter(EVERY.values()))
    assert fits.is_applicable
    assert not replace(fits, find="not there").is_applicable
    assert not replace(fits, find=" ").is_applicable
    assert not replace(fits, file="src/kohort/nowhere.py").is_applicable
