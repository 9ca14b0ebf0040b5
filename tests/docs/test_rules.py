"""docs/internals/rules.md lists every rule with its tests, as the tests themselves name them."""

from __future__ import annotations

import rules

# Outside of any test, or these two would count as tests of the rules they name.
TEST_FILE = '''
def test_c10_l11_both() -> None:
    """K7, and not A10-A17 or C2x."""
    check(1)  # B1

def helper() -> None:
    """C12"""
'''
DIALOGUES = """
[joining]
about = "Not C1."
rules = ["C10", "K7"]
"""
AT_LEAST = 100
IN_TEST_FILE = {"C10", "L11", "K7", "B1"}
IN_DIALOGUE = {"C10", "K7"}


def test_the_page_is_what_the_tests_say() -> None:
    """Write it anew with `python tools/rules.py` after a test of a rule came or went."""
    assert rules.PAGE.read_text(encoding="utf-8") == rules.page()


def test_every_rule_has_a_test_or_a_reason() -> None:
    assert rules.unproven(rules.sections(), rules.proofs()) == []


def test_most_rules_are_recorded_from_kafka() -> None:
    every = {rule.id for section in rules.sections().values() for rule in section}
    assert len(rules.recorded(rules.proofs()) & every) >= AT_LEAST


def test_ids_are_read_from_names_docstrings_and_comments() -> None:
    found = set(rules.ids_in_tests(TEST_FILE))
    assert found == {(rule_id, "test_c10_l11_both") for rule_id in IN_TEST_FILE}


def test_a_dialogue_names_its_rules() -> None:
    assert set(rules.ids_in_dialogues(DIALOGUES)) == {(each, "joining") for each in IN_DIALOGUE}
