"""Our broker and a live Kafka answer the same under each policy that forbids to move groups."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from tests.coordinator_dialogues import script
from tests.coordinator_dialogues.runner import Outcome, run_all
from tests.coordinator_dialogues.script import Dialogue
from tests.coordinator_dialogues.settings import kafka_settings, our_settings
from tests.real_kafka.broker import RealKafka

# These begin with members of one protocol, so they get to what is forbidden under every policy.
NAMES = {
    "upgrade",
    "upgrade-of-an-empty-group",
    "static-member-upgrades",
    "static-member-downgrades",
    "static-member-downgrades-to-something-else",
    "downgrade-of-two",
    "classic-member-joins-a-consumer-group",
    "classic-takes-over-an-empty-consumer-group",
}

Answers = dict[tuple[str, int], str]


@pytest.mark.parametrize("policy", ["upgrade", "downgrade", "disabled"])
def test_k40_k47_a_policy_means_the_same(policy: str, tmp_path: Path) -> None:
    """What follows a refusal is compared, too, as far as a dialogue then goes."""
    key = "group.consumer.migration.policy"
    dialogues = [each for each in script.read_all() if each.name in NAMES]
    assert len(dialogues) == len(NAMES)
    settings = {**kafka_settings(), key: policy}
    same = {**our_settings(), key.replace(".", "_"): policy}
    with RealKafka(tmp_path / "kafka", settings) as kafka:
        kafkas = asyncio.run(run_all(kafka.bootstrap_servers, dialogues))
    with EmbeddedBroker(None, **same) as broker:
        ours = asyncio.run(run_all(broker.bootstrap_servers, dialogues))
    assert answers(ours) == answers(kafkas)
    refused = [each for each in answers(kafkas).values() if "GROUP_ID_NOT_FOUND" in each]
    assert refused or policy == "upgrade"


def answers(outcomes: list[Outcome]) -> Mapping[tuple[str, int], str]:
    """By dialogue and step, without what we answer otherwise on purpose."""
    return {
        (each.dialogue.name, number): answer
        for each in outcomes
        for number, answer in each.answers.items()
        if not on_purpose(each.dialogue, number)
    }


def on_purpose(dialogue: Dialogue, number: int) -> bool:
    """Decision 0012: classic members that are left alone are asked to join, so that all is read."""
    return (number, -1) in dialogue.ours or (dialogue.name, number) == ("downgrade-of-two", 10)
