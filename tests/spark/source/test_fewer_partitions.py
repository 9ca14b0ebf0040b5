"""A topic that is deleted while the source asks about it, and recreated with fewer partitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.cimpl import NewTopic

from kohort.spark.source.lookup import DataLossError, Lookup
from kohort.types import TopicPartition
from tests.spark.brokers import bootstrap
from tests.spark.conftest import Start
from tests.spark.playing import once, produce
from tests.spark.source.test_nothing_skipped import FRESH, admin

__all__ = ["bootstrap"]

OLD = dict.fromkeys(range(4), 50)
NEW = dict.fromkeys(range(2), 30)
MODES = ["member", "none"]

Change = Callable[[], None]


@pytest.fixture
def shrink(bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> Change:
    """Has the topic recreated between a look at the topics and the question for their ends."""
    plain = Lookup.ends
    changes: list[int] = []

    def ends(lookup: Lookup, places: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        if changes:
            changes.clear()
            admin(bootstrap).delete_topics([topic])[topic].result(60)
            while admin(bootstrap).create_topics([NewTopic(topic, 2, 1)])[topic].exception(10):
                pass
            produce(bootstrap, topic, NEW)
            lookup.forget_ends()
        return plain(lookup, places)

    monkeypatch.setattr(Lookup, "ends", ends)
    return lambda: changes.append(1)


@pytest.mark.parametrize("mode", MODES)
def test_it_is_said_before_the_client_gives_up(
    bootstrap: str, topic: str, start: Start, shrink: Change, mode: str
) -> None:
    produce(bootstrap, topic, OLD)
    query = start(groupMode=mode, **FRESH)
    query.run_until(200)
    shrink()
    with pytest.raises(DataLossError, match=r"recreated.*had 4 partitions and has 2") as failed:
        query.run_until(260)
    assert f"topic {topic} was deleted" in str(failed.value)
    assert len(query.sink) == 200


@pytest.mark.parametrize("mode", MODES)
def test_the_new_topic_is_read_from_its_beginning_on_request(
    bootstrap: str,
    topic: str,
    start: Start,
    shrink: Change,
    mode: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    produce(bootstrap, topic, OLD)
    query = start(groupMode=mode, failOnDataLoss="false", **FRESH)
    query.run_until(200)
    shrink()
    query.run_until(260)
    assert once(query.sink[200:], NEW)
    assert "was deleted and recreated" in caplog.text


@pytest.mark.parametrize("mode", MODES)
def test_a_read_to_the_present_end_ends(
    bootstrap: str, topic: str, start: Start, shrink: Change, mode: str
) -> None:
    produce(bootstrap, topic, OLD)
    query = start(groupMode=mode, failOnDataLoss="false", **FRESH)
    query.run_until(200)
    shrink()
    query.reader.prepareForTriggerAvailableNow()
    while query.offer():
        query.write()
    assert once(query.sink[200:], NEW)
