"""A restarted query hears of its repeated batch before the group lets it in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker, Fault
from kohort.spark.completion.control import LISTENING, application_directory
from kohort.spark.completion.sinks import SinkError
from tests.spark.completion.test_preconditions import OUT, TEN, ZERO, first_batch, tell
from tests.spark.conftest import Start
from tests.spark.playing import PlayedQuery, committed, produce

JOINS = ("JoinGroup", "ConsumerGroupHeartbeat")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(
        tmp_path_factory.mktemp("slow"),
        group_consumer_heartbeat_interval_ms=100,
        group_consumer_session_timeout_ms=6_000,
    ) as broker:
        yield broker


@pytest.fixture
def bootstrap(broker: EmbeddedBroker) -> Iterator[str]:
    yield broker.bootstrap_servers
    broker.faults.clear()


@pytest.fixture
def listener() -> Iterator[Path]:
    application = application_directory(os.getppid())
    (application / LISTENING).touch()
    yield application
    (application / LISTENING).unlink()


def refused(
    bootstrap: str,
    topic: str,
    start: Start,
    between: Callable[[], object] = lambda: None,
    **more: str,
) -> PlayedQuery:
    """Return a query that was killed in a batch, repeated it, and heard that its sink skipped it.

    Args:
        bootstrap: The broker.
        topic: The topic, which is filled.
        start: Starts queries.
        between: Called before the second start.
        more: Options of the query.
    """
    produce(bootstrap, topic, TEN)
    killed = first_batch(start(**more))
    killed.reader.stop()
    between()
    query = start(killed.last, **more)
    query.open = killed.open
    query.write()
    tell(query, sink=OUT, refusal="the sink has skipped it")
    with pytest.raises(SinkError):
        query.offer()
    query.reader.stop()
    return query


def test_a_refused_batch_is_noted_once_the_group_lets_the_query_in(
    broker: EmbeddedBroker, bootstrap: str, topic: str, start: Start, listener: Path
) -> None:
    def delay_joins() -> None:
        for api in JOINS:
            broker.faults.add(Fault(action="delay", api=api, delay_ms=1_500))

    query = refused(bootstrap, topic, start, delay_joins)
    broker.faults.clear()
    assert committed(bootstrap, topic, range(4)) == ZERO
    again = start(query.last)
    assert again.offer()
    assert len(again.write()) == 40


def test_a_query_that_does_not_join_notes_it_at_once(
    bootstrap: str, topic: str, start: Start, listener: Path
) -> None:
    query = refused(bootstrap, topic, start, groupMode="commitOnly")
    again = start(query.last, groupMode="commitOnly")
    assert again.offer()
    assert len(again.write()) == 40


def test_a_refused_batch_that_cannot_be_noted_is_told(
    broker: EmbeddedBroker,
    bootstrap: str,
    topic: str,
    start: Start,
    listener: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def silence_joins() -> None:
        for api in JOINS:
            broker.faults.add(Fault(action="silence", api=api, times=0))

    # What waits behind a silent join on its connection goes on once the client has connected anew.
    refused(bootstrap, topic, start, silence_joins, **{"kafka.request.timeout.ms": "5000"})
    (said,) = [each.getMessage() for each in caplog.records if "cannot record" in each.getMessage()]
    assert "the group has not let the query in" in said
    assert "start the query with a new checkpoint" in said
