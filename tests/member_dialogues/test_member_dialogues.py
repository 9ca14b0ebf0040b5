"""Our consumer does in every member dialogue what `make record` saw Kafka's own consumer do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.coordinator_dialogues.files import kafka_version
from tests.member_dialogues import script
from tests.member_dialogues.brokers import java_on_ours, ours_on_kafka, ours_on_ours
from tests.member_dialogues.runner import Outcome, differences, settled
from tests.member_dialogues.script import Dialogue

# On a busy machine a leader of Java's assigns before it knows a topic that is new to it, and the
# group rebalances once more; and a member of KIP-848 counts one rebalance more, to no partitions,
# if its assignment comes before the name of the topic.
RACES_OF_JAVA = frozenset({"a-newcomer-brings-a-topic", "what-is-measured-under-kip-848"})
EVERY = script.read_all()


@pytest.fixture
def real_kafka() -> None:
    """Marks what needs a live Kafka, so that it can be left out where there is none.

    The one that other tests share has other settings.
    """


@pytest.fixture(name="javac")
def java_compiler() -> None:
    """Marks what needs a Java compiler as well."""


def test_our_consumer_on_our_broker() -> None:
    """Each dialogue names the rules that it proves; `N.ours` is where we differ on purpose."""
    check(ours_on_ours, EVERY, of_kafka=False)


def test_our_consumer_on_kafka(real_kafka: None, tmp_path: Path) -> None:
    """The same where the coordinator is not ours either."""
    assert kafka_version() == EVERY[0].recorded.partition(" ")[0]
    check(lambda some: ours_on_kafka(some, tmp_path), EVERY, of_kafka=False)


@pytest.mark.usefixtures("javac")
def test_kafkas_consumer_on_our_broker(real_kafka: None, tmp_path: Path) -> None:
    """It sees there what it saw on Kafka."""
    steady = [dialogue for dialogue in EVERY if dialogue.name not in RACES_OF_JAVA]
    assert len(steady) == len(EVERY) - len(RACES_OF_JAVA)
    check(lambda some: java_on_ours(some, tmp_path), steady, of_kafka=True)


def check(
    play: Callable[[list[Dialogue]], list[Outcome]],
    dialogues: Sequence[Dialogue],
    *,
    of_kafka: bool,
) -> None:
    """Play dialogues; what differs is played once more.

    Members have timers of their own: on a busy machine one may beat between two steps and learn
    early of what a later step is about.
    """
    outcomes = play(list(dialogues))
    again = [each.dialogue for each in outcomes if differences(each, of_kafka=of_kafka)]
    outcomes = play(again) if again else []
    found = [line for each in outcomes for line in differences(each, of_kafka=of_kafka)]
    if found:
        raise AssertionError("\n".join(found))


def test_a_difference_is_found() -> None:
    """A consumer that does otherwise, more, or nothing at all fails the comparison."""
    dialogue = EVERY[0]
    right = Outcome(dialogue, answers=dict(dialogue.answers))
    assert differences(right, of_kafka=True) == []
    wrong = Outcome(dialogue, answers={**right.answers, 2: "{}"})
    assert "saw      {}" in differences(wrong, of_kafka=True)[0]
    more = Outcome(dialogue, answers={**right.answers, 1: '{ a = ["refused"] }'})
    assert "refused" in differences(more, of_kafka=True)[0]
    assert differences(Outcome(dialogue, failure="it ended"), of_kafka=True)[0].endswith("it ended")


def test_what_timing_decides_is_left_out() -> None:
    """An assignment of nothing that is followed by one of something says nothing."""
    assert settled(["assigned nothing", "assigned topic-0", "has topic-0"]) == [
        "assigned topic-0",
        "has topic-0",
    ]
    kept = ["revoked topic-0", "assigned nothing", "has nothing"]
    assert settled(kept) == kept
    again = ["assigned nothing", "error of the listener", "assigned topic-0"]
    assert settled(again) == again
