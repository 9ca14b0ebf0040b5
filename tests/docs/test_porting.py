"""docs/porting.md lists every default in which the other clients differ, as they are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

import porting

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_clients_say() -> None:
    """Write it anew with `python tools/porting.py` after a default or a text changed."""
    assert porting.PAGE.read_text(encoding="utf-8") == porting.page()


def test_every_default_that_differs_is_explained_and_no_other() -> None:
    found = {each.name for peer in porting.PEERS for each in porting.differing(peer)}
    assert found == set(porting.data()["defaults"])


def test_defaults_come_from_the_clients_themselves() -> None:
    """One of each that its documentation names."""
    found = {
        (peer, each.client, each.name): (each.ours, each.default)
        for peer in porting.PEERS
        for each in porting.differing(peer)
    }
    assert found["kafka-python", "producer", "linger_ms"] == ("5", "0")
    assert found["confluent-kafka", "consumer", "isolation_level"] == (
        "read_uncommitted",
        "read_committed",
    )
    assert found["confluent-kafka", "producer", "enable_idempotence"] == ("true", "false")
    assert found["aiokafka", "consumer", "session_timeout_ms"] == ("45,000", "10,000")


@pytest.mark.parametrize("behaviour", porting.data()["behaviour"], ids=lambda each: each["what"])
def test_each_behaviour_differs_from_some_peer_and_is_shown(behaviour: dict[str, str]) -> None:
    assert set(behaviour) - {"what", "kohort", "proof"} <= set(porting.PEERS)
    assert set(behaviour) & set(porting.PEERS)
    assert (ROOT / behaviour["proof"]).is_file()


def test_librdkafka_tells_a_setting_it_lacks_from_one_without_a_default() -> None:
    library = porting._librdkafka()
    assert library.get("no.such.setting") is porting.MISSING
    assert library.get("linger.ms") == "5"
    assert library.get("group.instance.id") in ("", porting.MISSING)
